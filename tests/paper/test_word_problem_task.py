import itertools
import re
from collections import Counter

import pytest

from gar.data.problem_set import load_problems
from gar.settings import VerifySettings
from gar.verify import Verifier
from paper.tasks.__main__ import write_task
from paper.tasks.chains import TASKS, load_task
from paper.tasks.warm_start import solutions
from paper.tasks.word_problems import (
    METHODS,
    NUM_PROBLEMS,
    NUM_STEPS,
    WORDINGS,
    Step,
    Story,
    load_stories,
    load_word_problems,
    method_of,
    write_solution,
)

pytestmark = pytest.mark.paper


def test_load_word_problems_never_changes_and_gives_splits_that_share_no_problem():
    prompts = {split: [problem.prompt for problem in load_word_problems(split)] for split in NUM_PROBLEMS}
    assert {split: len(texts) for split, texts in prompts.items()} == NUM_PROBLEMS
    every = list(itertools.chain(*prompts.values()))
    assert len(set(every)) == len(every)
    problem = load_word_problems("train")[0]
    assert (problem.id, problem.prompt, problem.answer, problem.anchors[0].text) == (
        "train-0",
        "Mia has 6 baskets with 4 flowers in each. Mia finds 15 flowers. How many flowers does Mia have now?\n",
        "39",
        "<think>6 * 4 = 24. 24 + 15 = 39.</think><answer>39</answer>",
    )


@pytest.mark.parametrize(("method", "wording"), itertools.product(METHODS[:3], WORDINGS))
def test_write_solution_states_what_python_computes_from_the_story(method, wording):
    """All equations hold; the numbers are those of the text, in its order; the answer is the last value."""
    for split, stories in load_stories().items():
        for story, _ in stories[:100]:
            text = write_solution(story, method, wording)
            sentences = [re.findall(r"[-+*\d ()]*\d[-+*\d ()]*", part) for part in text.split(".")[:-1]]
            assert len(sentences) == (len(story.steps) if method == "steps" else 1)
            assert {len(stages) for stages in sentences} == {len(story.steps) + 1 if method == "reduction" else 2}
            assert len(story.steps) in NUM_STEPS[split]
            assert all(len({eval(stage.strip()) for stage in stages}) == 1 for stages in sentences)
            assert [int(number) for number in re.findall(r"\d+", story.text)] == [
                story.first,
                *(step.number for step in story.steps),
            ]
            assert all(2 <= value <= 99 for value in story.values())
            assert text.endswith(f"<answer>{sentences[-1][-1].strip()}</answer>")
            assert (f" {story.steps[-1].unit}." in text) == (wording == "units")


@pytest.mark.parametrize(
    ("method", "working"),
    [
        ("shorthand", "4 * 6. - 5. * 3 = 57 dollars."),  # each operation, and no value but the last
        ("skipping", "24 - 5 = 19 pens. 19 * 3 = 57 dollars."),
        ("running", "4 * 6 = 24 - 5 = 19 * 3 = 57 dollars."),
        ("unbracketed", "4 * 6 - 5 * 3 = 24 - 5 * 3 = 19 * 3 = 57 dollars."),
    ],
)
def test_methods_that_leave_something_out(method, working):
    story = Story("", 4, (Step("*", 6, "pens"), Step("-", 5, "pens"), Step("*", 3, "dollars")))
    assert write_solution(story, method, "units") == f"<think>{working}</think><answer>57</answer>"
    bare = working.replace(" pens", "").replace(" dollars", "")
    assert write_solution(story, method, "bare") == f"<think>{bare}</think><answer>57</answer>"


def test_method_of_recognizes_what_a_solution_was_written_by_with_right_or_wrong_values():
    for stories in load_stories().values():
        for (story, wording), method in itertools.product(stories[:50], METHODS):
            text = write_solution(story, method, wording)
            seen = "reduction" if method == "unbracketed" else method
            assert method_of(text, story.text) == method_of(text.replace("1", "7"), story.text) == seen
    assert (
        method_of("<think>4 * 6 = 24.</think><answer>9</answer>", "Ana has 4 bags of 6, loses 5, sells for 3") is None
    )
    assert method_of("I guess.", "Ana has 4 bags of 6") is None


def test_a_warm_start_shows_the_methods_in_their_shares_for_problems_of_no_split():
    rows = solutions(400, 0.5, ["running", "skipping"], seed=1)
    shown = Counter(method_of(row["completion"], row["prompt"]) for row in rows)
    assert shown.keys() == {"steps", "running", "skipping"}
    assert 160 < shown["steps"] < 240
    assert 70 < shown["running"] < 130
    assert not {row["prompt"] for row in rows} & {s.text for drawn in load_stories().values() for s, _ in drawn}
    alone = solutions(400, 0.5, ["running"], seed=1)
    assert [row["prompt"] for row in alone] == [row["prompt"] for row in rows]


def test_expert_solutions_are_verified():
    some = [problem for method in METHODS for problem in load_word_problems("harder", method)[:5]]
    texts, golds = [problem.anchors[0].text for problem in some], [problem.answer for problem in some]
    with Verifier.from_settings(VerifySettings(num_workers=1)) as verifier:
        verdicts = verifier.verify(texts, golds, prefilled_think=[False] * len(some))
    assert all(verdict.verified and verdict.well_formatted for verdict in verdicts)


def test_a_written_task_is_read_as_the_problems_that_were_drawn(tmp_path):
    def values(problem):
        return problem.id, problem.prompt, problem.answer, [anchor.text for anchor in problem.anchors], problem.source

    for name, expert in (
        ("which-way", None),
        ("whose-voice", None),
        ("word-problems", None),
        ("word-problems", "reduction"),
    ):
        for path in write_task(name, tmp_path, expert):
            read = load_problems(str(path))
            drawn = load_task(name, path.stem) if name in TASKS else load_word_problems(path.stem, expert)
            assert [values(problem) for problem in read] == [values(problem) for problem in drawn]
            assert len(read) == NUM_PROBLEMS[path.stem]
