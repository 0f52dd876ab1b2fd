"""The preflight, on policies that fail in one known way each."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from gar.data.arithmetic import load_arithmetic
from gar.errors import DataError, PreflightError
from gar.evaluation.evaluate import Sampling
from gar.evaluation.preflight import preflight, render
from gar.models.embedded import load_embedded
from gar.settings import PreflightSettings
from gar.types import Problem, ResponseFormat, Status, Tags, Verdict

MIXED = {"<answer>": {"7": 0.5, "3": 0.5}}
RIGHT = {"<answer>": {"7": 1.0}}
WRONG = {"<answer>": {"3": 1.0}}
ENDLESS = {"work": {"work": 1.0}}
WITHOUT_THINKING = {"=": {"<answer>": 1.0}, **RIGHT}
UNKNOWN_FORMAT = {"=": {"7": 1.0}, "7": {"<eos>": 1.0}}
EMPTY = {"=": {"<eos>": 1.0}}


def look(policy, tokenizer, problems, verifier, *, needs_alignment=True, sampling=None, **settings):
    sampling = Sampling(**{"seed": 1, "max_new_tokens": 10, "temperature": 1.0} | (sampling or {}))
    settings = PreflightSettings(**settings)
    return preflight(policy, tokenizer, problems, verifier, settings, sampling, needs_alignment=needs_alignment)


def finding_of(report, text):
    [finding] = [finding for finding in report.findings if text in finding.what]
    return finding


def shown(report):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(report))
    return " ".join(console.export_text().split())


def test_preflight_finds_nothing_wrong_with_a_policy_that_is_right_half_of_the_time(
    make_policy, tokenizer, problems, verifier
):
    report = look(make_policy(MIXED), tokenizer, problems, verifier)
    assert report.findings == ()
    assert len(report.facts.groups) == 16
    assert {group.num_samples for group in report.facts.groups} == {8}
    # 128 draws: the standard deviation of the share is 0.044.
    assert report.facts.correct_fraction == pytest.approx(0.5, abs=0.15)
    report.raise_if_stop()
    assert "No faults." in shown(report)


def test_preflight_stops_where_responses_are_cut_off(make_policy, tokenizer, problems, verifier):
    report = look(make_policy(ENDLESS), tokenizer, problems, verifier)
    assert report.facts.truncated_fraction == 1.0
    finding = finding_of(report, "without an end")
    assert finding.severity == "stop"
    assert finding.what == "100% of responses reach max_completion_length 10 without an end"
    assert "Raise --trl.max_completion_length" in finding.advice
    assert "'<eos>'" in finding.cause
    assert "'<think> work work" in finding.example
    assert "cut off before they could" in finding_of(report, "not in the format").cause
    assert "are complete and readable" in finding_of(report, "no response of 128 is correct").cause
    with pytest.raises(PreflightError, match=r"(?s)128 responses to 16 problems.*100% of.*--preflight\.mode warn"):
        report.raise_if_stop()


def test_preflight_warns_where_some_responses_are_cut_off(make_policy, tokenizer, problems, verifier):
    policy = make_policy({"work": {"work": 0.85, "</think>": 0.15}, **RIGHT})
    report = look(policy, tokenizer, problems, verifier, sampling={"max_new_tokens": 16})
    assert 0.1 < report.facts.truncated_fraction < 0.3
    assert finding_of(report, "without an end").severity == "warn"
    report.raise_if_stop()


@pytest.mark.parametrize(
    ("changes", "what", "cause", "advice", "example", "others"),
    [
        (
            WRONG, "no response of 128 is correct", "too hard for this model, or its answers have another form",
            "Compare the answers", "gold '7': '<think> work </think> <answer> 3 </answer>'", [],
        ),
        (
            UNKNOWN_FORMAT, "100% of responses are not in the format 'think-answer'",
            "The prompt does not ask for this format", "--data.template think-answer", "'7' (", ["stop"],
        ),
        (
            WITHOUT_THINKING, "no response of 128 is correct", "100% have the right answer, but in bad format",
            "Make the format right first", "'<answer> 7 </answer>'", ["stop", "warn"],
        ),
        (
            EMPTY, "100% of responses are not in the format", "Most responses are empty", "chat template", "''",
            ["stop"],
        ),
    ],
    ids=["wrong", "unknown format", "bad format", "empty"],
)  # fmt: skip
def test_preflight_stops_where_nothing_can_be_learned(
    make_policy, tokenizer, problems, verifier, changes, what, cause, advice, example, others
):
    report = look(make_policy(changes), tokenizer, problems, verifier)
    finding = finding_of(report, what)
    assert cause in finding.cause
    assert advice in finding.advice
    assert example in finding.example
    assert [finding.severity for finding in report.findings] == ["stop", *others]
    with pytest.raises(PreflightError, match="no response of 128 is correct"):
        report.raise_if_stop()


def test_preflight_explains_a_prompt_that_opens_the_thinking_part(make_policy, tokenizer, problems, verifier):
    # The policy opens the thinking part once more, as one does that was tuned without the prefilled tag.
    opened = [replace(problem, prompt=f"{problem.prompt} <think>") for problem in problems]
    reopening = look(make_policy({"<think>": {"=": 1.0}}), tokenizer, opened, verifier)
    assert reopening.facts.prefilled_fraction == 1.0
    finding = finding_of(reopening, "not in the format")
    assert finding.severity == "stop"
    closing = make_policy({"<think>": {"<think>": 0.5, "work": 0.5}, "work": {"<eos>": 1.0}})
    finding = finding_of(look(closing, tokenizer, opened, verifier), "not in the format")
    assert finding.cause.startswith("The prompt ends in <think>")
    assert "--verify.format boxed or none" in finding.advice
    # One that goes on where the prompt leaves off is fine.
    assert look(make_policy(MIXED), tokenizer, opened, verifier).findings == ()


def test_preflight_stops_where_no_gold_answer_can_be_read(make_policy, tokenizer, problems, verifier):
    report = look(make_policy(RIGHT), tokenizer, [replace(p, answer="") for p in problems], verifier)
    assert finding_of(report, "ended in error").example.endswith("(the gold answer is empty)")


class FailingVerifier:
    """A verifier whose verdicts end in one status for one gold answer, and are right for the others."""

    def __init__(self, status: Status, gold: str = "7") -> None:
        self.format: ResponseFormat = "think-answer"
        self.tags = Tags()
        self.failed = Verdict(status=status, grade=0.0, verified=False, well_formatted=True, detail="disk on fire")
        self.gold = gold

    def verify(
        self, responses: Sequence[str], golds: Sequence[str], *, prefilled_think: Sequence[bool], prompts: Sequence[str]
    ) -> list[Verdict]:
        right = Verdict(status=Status.OK, grade=1.0, verified=True, well_formatted=True)
        return [self.failed if gold == self.gold else right for gold in golds]


@pytest.mark.parametrize(
    ("status", "what", "advice"),
    [
        (Status.ERROR, "verification of {}% of responses ended in error", "is the gold answer unreadable (`gar data"),
        (Status.TIMEOUT, "verification of {}% of responses ended in timeout", "Raise --verify.timeout_seconds"),
        (Status.UNPARSED, "{}% of well-formatted responses hold no answer that can be parsed", "give your own grader"),
    ],
)
def test_preflight_tells_a_failing_verifier_from_wrong_answers(make_policy, tokenizer, problems, status, what, advice):
    report = look(make_policy(MIXED), tokenizer, problems, FailingVerifier(status), num_samples=2)
    finding = finding_of(report, what.format(100))
    assert finding.severity == "stop"
    assert advice in finding.advice
    assert finding.example.endswith("(disk on fire)")
    few = [replace(problem, answer="8" if i < 2 else "7") for i, problem in enumerate(problems[:10])]
    report = look(make_policy(MIXED), tokenizer, few, FailingVerifier(status, gold="8"), num_samples=2)
    assert finding_of(report, what.format(20)).severity == "warn"


@pytest.mark.parametrize("needs_alignment", [True, False])
def test_preflight_warns_of_groups_all_correct_where_the_method_learns_nothing_from_them(
    make_policy, tokenizer, problems, verifier, needs_alignment
):
    report = look(make_policy(RIGHT), tokenizer, problems, verifier, needs_alignment=needs_alignment)
    assert report.facts.all_correct_fraction == 1.0
    warnings = [("warn", "in 100% of groups every response is correct")]
    assert [(f.severity, f.what) for f in report.findings] == ([] if needs_alignment else warnings)
    assert all("--method gar-grpo" in finding.advice for finding in report.findings)


def test_preflight_warns_of_groups_all_wrong(make_policy, tokenizer, problems, verifier):
    report = look(make_policy({"<answer>": {"7": 0.03, "3": 0.97}}), tokenizer, problems, verifier)
    assert 0.5 < report.facts.all_wrong_fraction < 1
    [finding] = report.findings
    assert finding.severity == "warn"
    assert finding.fraction == report.facts.all_wrong_fraction
    assert "every response is wrong" in finding.what


@pytest.mark.parametrize(("num_without", "severity"), [(40, "stop"), (10, "warn"), (4, None), (0, None)])
def test_preflight_counts_missing_anchors_of_all_problems(
    make_policy, tokenizer, problems, verifier, num_without, severity
):
    problems = [replace(p, anchors=() if i < num_without else p.anchors) for i, p in enumerate(problems)]
    report = look(make_policy(MIXED), tokenizer, problems, verifier)
    assert report.facts.missing_anchor_fraction == num_without / 40
    assert [finding.severity for finding in report.findings] == ([severity] if severity else [])
    if severity:
        assert "--data.anchor_fields" in finding_of(report, "have no expert solution").advice
    assert look(make_policy(MIXED), tokenizer, problems, verifier, needs_alignment=False).findings == ()


def test_preflight_draws_its_problems_from_all_of_them(make_policy, tokenizer, problems, verifier):
    report = look(make_policy(MIXED), tokenizer, problems, verifier, num_problems=10, num_samples=2)
    drawn = [int(group.problem.id[1:]) for group in report.facts.groups]
    assert len(set(drawn)) == 10
    assert drawn == sorted(drawn)
    assert max(drawn) >= 20  # the first ten of a sorted file would say little of it
    few = look(make_policy(MIXED), tokenizer, problems[:3], verifier, num_problems=10, num_samples=2)
    assert [group.problem.id for group in few.facts.groups] == ["p0", "p1", "p2"]


def test_preflight_samples_at_the_temperature_of_training(make_policy, tokenizer, problems, verifier):
    policy = make_policy({"<answer>": {"7": 0.6, "3": 0.4}})
    report = look(policy, tokenizer, problems, verifier, sampling={"temperature": 0.01})
    assert report.facts.correct_fraction == 1.0


@pytest.mark.parametrize(
    "sampling", [{"top_k": 1}, {"min_p": 0.9}, {"do_sample": False}, {"suppress_tokens": [3]}], ids=str
)
def test_preflight_samples_as_training_does(make_policy, tokenizer, problems, verifier, sampling):
    """Without these settings 45% of the responses are right; under each of them every response is empty."""
    assert tokenizer.convert_tokens_to_ids("<think>") == 3
    policy = make_policy({"=": {"<eos>": 0.55, "<think>": 0.45}, **RIGHT})
    look(policy, tokenizer, problems, verifier).raise_if_stop()
    with pytest.raises(PreflightError, match="Most responses are empty"):
        look(policy, tokenizer, problems, verifier, sampling={"generation_kwargs": sampling}).raise_if_stop()


def test_preflight_ends_responses_where_training_does(make_policy, tokenizer, problems, verifier):
    report = look(
        make_policy(RIGHT), tokenizer, problems, verifier,
        sampling={"generation_kwargs": {"eos_token_id": tokenizer.convert_tokens_to_ids("work"), "max_new_tokens": 2}},
    )  # fmt: skip
    assert report.facts.truncated_fraction == 0.0
    assert {response.num_tokens for group in report.facts.groups for response in group.responses} == {2}


def test_preflight_refuses_an_empty_list(make_policy, tokenizer, verifier):
    with pytest.raises(DataError, match="no problems"):
        look(make_policy(MIXED), tokenizer, [], verifier)


def test_preflight_report_to_json_holds_numbers_that_json_can_write(make_policy, tokenizer, problems, verifier):
    report = look(make_policy(WRONG), tokenizer, problems, verifier)
    values = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert values["num_problems"] == 16
    assert values["num_samples"] == 8
    assert values["all_wrong_fraction"] == 1.0
    assert values["status_fractions"] == {"ok": 0.0, "wrong": 1.0, "unparsed": 0.0, "timeout": 0.0, "error": 0.0}
    assert [finding["what"] for finding in values["findings"]] == ["no response of 128 is correct"]


def test_render_shows_fractions_and_findings(make_policy, tokenizer, problems, verifier):
    # A text in brackets is no markup.
    asked = [Problem(id=f"[red]{i}", prompt="=", answer="7") for i in range(3)]
    text = shown(look(make_policy(WRONG), tokenizer, asked, verifier, num_samples=2))
    assert "Preflight: 3 problems, 2 responses each" in text
    assert "groups all wrong │ 100% │" in text
    assert "verification: wrong │ 100% │" in text
    assert "WARN: no response of 6 is correct. The problems are too hard" in text
    assert "For example problem '[red]0', gold '7': '<think> work </think> <answer> 3 </answer>'" in text


def test_preflight_lets_the_embedded_model_train_on_its_task(verifier):
    model, tokenizer = load_embedded()
    report = look(model, tokenizer, load_arithmetic("train"), verifier, sampling={"max_new_tokens": 48})
    report.raise_if_stop()
    assert 0 < report.facts.correct_fraction < 1
    cut = look(model, tokenizer, load_arithmetic("train"), verifier, sampling={"max_new_tokens": 4})
    assert finding_of(cut, "reach max_completion_length 4").severity == "stop"
