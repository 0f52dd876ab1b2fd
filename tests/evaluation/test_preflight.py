"""The preflight, on policies that fail in one known way each."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from gar.errors import DataError, PreflightError
from gar.evaluation.evaluate import Sampling
from gar.evaluation.preflight import ALL_CORRECT, ALL_WRONG, CORRECT, CUT_OFF, NO_ANCHOR, PREFILLED, preflight, render
from gar.settings import PreflightSettings
from gar.types import ResponseFormat, Status, Tags, Verdict
from tests.support.errors import raises

MIXED = {"<answer>": {"7": 0.5, "3": 0.5}}
RIGHT = {"<answer>": {"7": 1.0}}
WRONG = {"<answer>": {"3": 1.0}}
EMPTY = {"=": {"<eos>": 1.0}}


@pytest.fixture
def look(make_policy, tokenizer, problems, verifier):
    """The report on a policy: `look(MIXED, num_samples=2)`."""

    def report(changes, asked=problems, judge=verifier, *, needs_alignment=True, sampling=None, **settings):
        how = Sampling(**{"seed": 1, "max_new_tokens": 10, "temperature": 1.0} | (sampling or {}))
        policy, settings = make_policy(changes), PreflightSettings(**settings)
        return preflight(policy, tokenizer, asked, judge, settings, how, needs_alignment=needs_alignment)

    return report


def finding_of(report, text):
    [finding] = [finding for finding in report.findings if text in finding.what]
    return finding


def shown(report):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(report))
    return " ".join(console.export_text().split())


def test_preflight_finds_nothing_wrong_with_a_policy_that_is_right_half_of_the_time(look):
    report = look(MIXED)
    assert report.findings == ()
    assert [group.num_samples for group in report.groups] == [8] * 16
    # 128 draws: the standard deviation of the share is 0.044.
    assert report.shares[CORRECT] == pytest.approx(0.5, abs=0.15)
    report.raise_if_stop()
    assert "No faults." in shown(report)


@pytest.mark.parametrize(
    ("changes", "what", "cause", "advice", "example", "severities"),
    [
        ({"work": {"work": 1.0}}, "100% of responses reach max_completion_length 10 without an end", "'<eos>'",
         "Raise --trl.max_completion_length", "'<think> work work", ["stop"] * 3),
        ({"work": {"work": 1.0}}, "not in the format", "cut off before they could", "first", "", ["stop"] * 3),
        (WRONG, "no response of 128 is correct", "too hard for this model, or its answers have another form",
         "Compare the answers", "gold '7': '<think> work </think> <answer> 3 </answer>'", ["stop"]),
        ({"=": {"7": 1.0}, "7": {"<eos>": 1.0}}, "100% of responses are not in the format 'think-answer'",
         "The prompt does not ask for this format", "--data.template think-answer", "'7' (", ["stop"] * 2),
        ({"=": {"<answer>": 1.0}, **RIGHT}, "no response of 128 is correct",
         "100% have the right answer, but in bad format", "Make the format right first", "", ["stop", "stop", "warn"]),
        (EMPTY, "100% of responses are empty", "The model ends where it should begin", "chat messages", "''",
         ["stop"] * 2),
    ],
    ids=["endless", "endless, format", "wrong", "unknown format", "bad format", "empty"],
)  # fmt: skip
def test_preflight_stops_where_nothing_can_be_learned(look, changes, what, cause, advice, example, severities):
    report = look(changes)
    finding = finding_of(report, what)
    assert cause in finding.cause
    assert advice in finding.advice
    assert example in finding.example
    assert [finding.severity for finding in report.findings] == severities
    with pytest.raises(PreflightError, match=r"(?s)128 responses to 16 problems.*is correct.*--preflight\.mode warn"):
        report.raise_if_stop()


def test_preflight_warns_where_some_responses_are_cut_off(look):
    report = look({"work": {"work": 0.85, "</think>": 0.15}, **RIGHT}, sampling={"max_new_tokens": 16})
    assert 0.1 < report.shares[CUT_OFF] < 0.3
    assert finding_of(report, "without an end").severity == "warn"
    report.raise_if_stop()


def test_preflight_explains_a_prompt_that_opens_the_thinking_part(look, problems):
    # The policy opens the thinking part once more, as one does that was tuned without the prefilled tag.
    opened = [replace(problem, prompt=f"{problem.prompt} <think>") for problem in problems]
    reopening = look({"<think>": {"=": 1.0}}, opened)
    assert reopening.shares[PREFILLED] == 1.0
    assert finding_of(reopening, "not in the format").severity == "stop"
    closing = look({"<think>": {"<think>": 0.5, "work": 0.5}, "work": {"<eos>": 1.0}}, opened)
    finding = finding_of(closing, "not in the format")
    assert finding.cause.startswith("The prompt ends in <think>")
    assert "--verify.format boxed or none" in finding.advice
    # One that goes on where the prompt leaves off is fine.
    assert look(MIXED, opened).findings == ()


def test_preflight_stops_where_no_gold_answer_can_be_read(look, problems):
    report = look(RIGHT, [replace(problem, answer="") for problem in problems])
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
def test_preflight_tells_a_failing_verifier_from_wrong_answers(look, problems, status, what, advice):
    finding = finding_of(look(MIXED, judge=FailingVerifier(status), num_samples=2), what.format(100))
    assert finding.severity == "stop"
    assert advice in finding.advice
    assert finding.example.endswith("(disk on fire)")
    few = [replace(problem, answer="8" if i < 2 else "7") for i, problem in enumerate(problems[:10])]
    report = look(MIXED, few, FailingVerifier(status, gold="8"), num_samples=2)
    assert finding_of(report, what.format(20)).severity == "warn"


def test_preflight_warns_of_groups_from_which_the_method_learns_nothing(look):
    assert look(RIGHT).findings == ()
    report = look(RIGHT, needs_alignment=False)
    assert report.shares[ALL_CORRECT] == 1.0
    (finding,) = report.findings
    assert (finding.severity, finding.what) == ("warn", "in 100% of groups every response is correct")
    assert "--method gar-grpo" in finding.advice
    report = look({"<answer>": {"7": 0.03, "3": 0.97}})
    assert 0.5 < report.shares[ALL_WRONG] < 1
    (finding,) = report.findings
    assert (finding.severity, "every response is wrong" in finding.what) == ("warn", True)


@pytest.mark.parametrize(("num_without", "severity"), [(40, "stop"), (10, "warn"), (4, None)])
def test_preflight_counts_missing_anchors_of_all_problems(look, problems, num_without, severity):
    problems = [replace(p, anchors=() if i < num_without else p.anchors) for i, p in enumerate(problems)]
    report = look(MIXED, problems)
    assert report.shares[NO_ANCHOR] == num_without / 40
    assert [finding.severity for finding in report.findings] == ([severity] if severity else [])
    assert all("--data.anchor_fields" in finding.advice for finding in report.findings)
    assert look(MIXED, problems, needs_alignment=False).findings == ()


def test_preflight_draws_its_problems_from_all_of_them(look, problems):
    drawn = [int(group.problem.id[1:]) for group in look(MIXED, num_problems=10, num_samples=2).groups]
    assert drawn == sorted(set(drawn))
    assert (len(drawn), max(drawn) >= 20) == (10, True)  # the first ten of a sorted file would say little of it
    few = look(MIXED, problems[:3], num_problems=10, num_samples=2)
    assert [group.problem.id for group in few.groups] == ["p0", "p1", "p2"]
    with raises(DataError):
        look(MIXED, [])


@pytest.mark.parametrize(
    "kwargs", [{"top_k": 1}, {"min_p": 0.9}, {"do_sample": False}, {"suppress_tokens": [3]}], ids=str
)
def test_preflight_samples_as_training_does(look, tokenizer, kwargs):
    """Without these settings 45% of the responses are right; under each of them every response is empty."""
    assert tokenizer.convert_tokens_to_ids("<think>") == 3
    changes = {"=": {"<eos>": 0.55, "<think>": 0.45}, **RIGHT}
    look(changes).raise_if_stop()
    with pytest.raises(PreflightError, match="100% of responses are empty"):
        look(changes, sampling={"generation_kwargs": kwargs}).raise_if_stop()


def test_preflight_ends_and_heats_responses_as_training_does(look, tokenizer):
    ends = {"eos_token_id": tokenizer.convert_tokens_to_ids("work"), "max_new_tokens": 2}
    report = look(RIGHT, sampling={"generation_kwargs": ends})
    assert report.shares[CUT_OFF] == 0.0
    assert {response.num_tokens for group in report.groups for response in group.responses} == {2}
    cold = look({"<answer>": {"7": 0.6, "3": 0.4}}, sampling={"temperature": 0.01})
    assert cold.shares[CORRECT] == 1.0


def test_render_shows_fractions_and_findings(look, problems):
    # A text in brackets is no markup.
    text = shown(look(WRONG, [replace(problem, id=f"[red]{problem.id}") for problem in problems[:3]], num_samples=2))
    assert "Preflight: 3 problems, 2 responses each" in text
    assert "groups all wrong │ 100% │" in text
    assert "verification: wrong │ 100% │" in text
    assert "WARN: no response of 6 is correct. The problems are too hard" in text
    assert "For example problem '[red]p0', gold '7': '<think> work </think> <answer> 3 </answer>'" in text
