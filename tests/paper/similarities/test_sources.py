"""Questions from files and from samples, and the check of written calculations."""

import json
from dataclasses import replace

import pytest

from gar.data.arithmetic import load_arithmetic, write_solution
from gar.errors import DataError
from gar.types import Problem
from paper.analyses.policies import Policy
from paper.analyses.similarities.questions import Questions
from paper.analyses.similarities.solutions import read_solutions
from paper.analyses.similarities.sources import (
    Scope,
    for_text,
    questions_for,
    read_rated,
    sample_questions,
    text_soundness,
)
from paper.analyses.similarities.tokens import read_solutions_as
from tests.files import write_jsonl

pytestmark = pytest.mark.paper

PROBLEM = Problem(id="p", prompt="How many?", answer="7")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("She has 3 + 4 = 7 eggs.\nA: 7", "sound"),
        ("It costs 2 x $1,200 = $2,400.", "sound"),
        ("Half of it: 10 / 4 = 2.5, and (1 + 2) * 3 = 9", "sound"),
        ("She has 3 + 4 = 8 eggs, so 8 - 1 = 7.", "wrong step"),
        ("1 / 3 = 0.33", "sound"),  # written to a cent
        ("She has 7 eggs.\n#### 7", "no steps"),
        ("So x = 7", "no steps"),  # no calculation
        ("7 = 7", "no steps"),
        ("4 / 0 = 7", "no steps"),
        ("2 ** 99999999 = 7", "no steps"),
        ("((((((1 + = 7", "no steps"),
        (f"{'(' * 5000}1+1 = 2", "no steps"),
    ],
)
def test_text_soundness_checks_what_it_can_read(text, label):
    assert text_soundness(PROBLEM, text) == label


def rated(question: str, right: str) -> dict:
    return {
        "question": question,
        "ground_truth": "It is 3 + 4 = <<3+4=7>>7.\nA: 7",
        "small": {"solution": right, "is_correct": True},
        "large": {"solution": "3 + 4 = 8\nA: 8", "is_correct": False},
    }


def test_questions_for_rated_solutions(embedded, tmp_path):
    rows = [rated(f"{i}+4=", f"Add {i}:\n{i} + 4 = <<3+4=7>>7\n7 + 0 = 7\nA: 7") for i in range(4)]
    path = write_jsonl(tmp_path / "rated.jsonl", rows)
    first = read_rated(path, embedded)[0]
    assert (first.expert, first.right) == ("It is 3 + 4 = 7.", ["Add 0:\n0 + 4 = 7\n7 + 0 = 7\nA: 7"])
    assert first.wrong == ["3 + 4 = 8\nA: 8"]
    questions = questions_for(embedded, Scope(solutions=path, num_problems=2, skip=1))
    assert {triple.problem_id for triple in questions.triples} == {"line-2", "line-3"}
    assert {triple.question for triple in questions.triples} == {"own", "sound", "natural"}


def test_read_rated_names_the_line_that_lacks_a_column(embedded, tmp_path):
    path = write_jsonl(tmp_path / "rated.jsonl", [rated("1+1=", "2"), {"ground_truth": "7"}])
    with pytest.raises(DataError, match=r"rated.jsonl:2: no 'question'"):
        read_rated(path, embedded)


def test_questions_for_labeled_solutions_are_those_of_the_task(embedded, tmp_path):
    rows = [
        {"id": p.id, "prompt": p.prompt, "solution": write_solution(p, method, wording), "method": method,
         "wording": wording}
        for p in embedded.problems[:3] for method in ("stepwise", "running") for wording in ("symbols", "words")
    ]  # fmt: skip
    path = write_jsonl(tmp_path / "labeled.jsonl", rows)
    labeled = questions_for(embedded, Scope(solutions=path, expert="stepwise"))
    task = questions_for(embedded, Scope(num_problems=3))

    def asked(questions: Questions) -> set:
        texts = [solution.text for solution in questions.solutions]
        return {
            (t.kind, *(texts[i] for i in (*t.better, *t.worse)))
            for t in questions.triples
            if t.question in ("equal-wording", "over-wording") and t.kind == "running"
        }

    assert asked(labeled) == asked(task)
    assert asked(task)


def with_chat_template(policy: Policy, source: str) -> Policy:
    tokenizer = type("Tokenizer", (), {"chat_template": "{{ messages }}"})()
    problems = [replace(problem, source=source) for problem in policy.problems]
    return replace(policy, tokenizer=tokenizer, problems=problems)


def test_for_text_gives_problems_as_a_chat_and_no_tags(embedded):
    assert for_text(embedded, None) is embedded
    policy = for_text(with_chat_template(embedded, "file.jsonl"), None)
    assert policy.problems[0].prompt == [{"role": "user", "content": embedded.problems[0].prompt}]
    assert policy.signal.span == "response"


@pytest.mark.parametrize(("text", "span"), [("7 = 7", "response"), ("<think> 7 </think>", "think")])
def test_for_text_looks_for_tags_in_the_solutions(embedded, tmp_path, text, span):
    path = tmp_path / "labeled.jsonl"
    path.write_text(json.dumps({"prompt": "1+1=", "solution": text, "method": "guess"}) + "\n")
    assert for_text(embedded, path).signal.span == span


def test_sample_questions_of_the_embedded_policy(embedded):
    questions = Questions()
    note = sample_questions(questions, embedded, Scope(skip=1, sampled_problems=4))
    assert note.endswith(f"{len(questions.triples)} pairs of a sound and an unsound one.")
    assert "of 64 responses to 4 problems are right" in note
    assert questions.triples
    allowed = {problem.id for problem in embedded.problems[1:5]}
    assert {triple.problem_id for triple in questions.triples} <= allowed
    assert {triple.question for triple in questions.triples} == {"sampled"}


def test_sample_questions_without_experts_says_so(embedded):
    bare = replace(embedded, problems=[replace(problem, anchors=()) for problem in load_arithmetic("test")[:2]])
    note = sample_questions(Questions(), bare, Scope())
    assert note == "sampled: no problem with an expert solution."


def test_read_solutions_as_agrees_with_a_pass_of_the_whole_model(embedded):
    """Log-probabilities and hidden states of `transformers` itself, one sequence at a time."""
    import torch

    questions = questions_for(embedded, Scope(num_problems=2))
    read = read_solutions_as(embedded, questions.solutions, anchors=[0])
    prompt, text = questions.solutions[1].prompt, questions.solutions[1].text
    ids = embedded.tokenizer(prompt)["input_ids"] + embedded.tokenizer.encode(text, add_special_tokens=False)
    with torch.no_grad():
        output = embedded.model(torch.tensor([ids]), output_hidden_states=True)
    open_, close = (embedded.tokenizer.convert_tokens_to_ids(tag) for tag in ("<think>", "</think>"))
    scored = torch.arange(ids.index(open_) + 1, ids.index(close))
    log_probs = output.logits[0].log_softmax(-1)[scored - 1, torch.tensor(ids)[scored]]
    # float32, another batch shape
    torch.testing.assert_close(read[1].log_probs, log_probs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(read[1].hidden, output.hidden_states[-1][0][scored - 1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(read[1].sizes, read[0].products.square().mean(0).sqrt())


def test_read_solutions_names_the_line_that_lacks_a_column(tmp_path):
    path = tmp_path / "solutions.jsonl"
    path.write_text('{"prompt": "1+1=", "solution": "2", "method": "guess"}\n{"prompt": "1+1=", "solution": "2"}\n')
    with pytest.raises(DataError, match=r"solutions.jsonl:2: no 'method'\. Expected prompt, solution and method"):
        read_solutions(path)
