"""The preflight, on policies that fail in one known way each."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gar.errors import PreflightError
from gar.evaluation.preflight import CORRECT, CUT_OFF, preflight, render
from gar.models.generate import Sampling
from gar.settings import PreflightSettings
from gar.types import ResponseFormat, Status, Tags, Verdict
from gar.verify.formats import FORMATS
from tests.support.errors import raises

MIXED = {"<answer>": {"7": 0.5, "3": 0.5}}
RIGHT = {"<answer>": {"7": 1.0}}
WRONG = {"<answer>": {"3": 1.0}}
EMPTY = {"=": {"<eos>": 1.0}}


@pytest.fixture
def look(make_policy, tokenizer, problems, verifier):
    """The report on a policy: `look(MIXED, num_samples=2)`."""

    def report(changes, asked=problems, judge=verifier, *, sampling=None, **settings):
        how = Sampling(**{"seed": 1, "max_new_tokens": 10, "temperature": 1.0} | (sampling or {}))
        policy, settings = make_policy(changes), PreflightSettings(**settings)
        return preflight(policy, tokenizer, asked, judge, settings, how)

    return report


def finding_of(report, what):
    """The one finding of this kind."""
    [found] = [finding for finding in report.findings if what in finding]
    return found


def shown(report):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(report))
    return " ".join(console.export_text().split())


def test_preflight_finds_nothing_wrong_with_a_policy_that_is_right_half_of_the_time(look):
    report = look(MIXED)
    assert report.findings == ()
    assert [len(group) for group in report.groups] == [8] * 16
    # 128 draws: the standard deviation of the share is 0.044.
    assert report.shares[CORRECT] == pytest.approx(0.5, abs=0.15)
    report.raise_if_stop()
    assert "No faults." in shown(report)


def test_preflight_names_the_share_of_answers_that_can_be_guessed(look, problems):
    lucky = [replace(problem, answer="B") if i % 4 == 0 else problem for i, problem in enumerate(problems)]
    report = look(MIXED, asked=lucky, num_problems=len(lucky))
    share = sum(problem.answer == "B" for problem in lucky) / len(lucky)
    assert report.shares["gold answers that can be guessed"] == share
    assert "A lucky response is paid like a right one" in finding_of(report, "are a letter, yes or no")
    assert not report.stops
    assert "can be guessed" in shown(report)
    assert "can be guessed" not in shown(look(MIXED))


STOPS = [
    ({"work": {"work": 1.0}}, "of responses reach max_completion_length 10",
     ["100% of", "'<eos>'", "Raise --trl.max_completion_length", "'<think> work work"], 3),
    (WRONG, "100% of groups hold no correct response",
     ["another form", "Compare the answers", "gold '7': '<think> work </think> <answer> 3 </answer>'"], 1),
    ({"=": {"7": 1.0}, "7": {"<eos>": 1.0}}, "100% of responses are not in the format 'think-answer'",
     ["does not ask for this format", "--data.template think-answer", "'7' ("], 2),
    (EMPTY, "100% of responses are empty", ["ends at once", "''"], 3),
]  # fmt: skip


def test_preflight_stops_where_nothing_can_be_learned(look):
    for changes, what, parts, number in STOPS:
        report = look(changes)
        text = finding_of(report, what)
        assert all(part in text for part in parts), text
        assert len(report.findings) == number
        assert "".join(report.findings).count("For example") == 1  # no response is shown twice
        with raises(PreflightError) as caught:
            report.raise_if_stop()
        assert all(text in str(caught.value) for text in report.findings)


def test_preflight_explains_a_prompt_that_opens_the_thinking_part(look, problems):
    # The policy opens the thinking part once more, as one does that was tuned without the prefilled tag.
    opened = [replace(problem, prompt=f"{problem.prompt} <think>") for problem in problems]
    reopening = look({"<think>": {"=": 1.0}}, opened)
    assert "ends in <think>" in finding_of(reopening, "not in the format")


def test_preflight_names_no_template_that_is_in_force(look, problems, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", "{% for each in messages %}{{ each['content'] }}{% endfor %} =")
    assert "--data.template chat" in finding_of(look(EMPTY), "of responses are empty")
    asked = [{"role": "user", "content": f"3+4 {FORMATS['think-answer'].instruction(Tags())}"}]
    report = look(EMPTY, [replace(problem, prompt=asked) for problem in problems])
    assert "--data.template" not in "".join(report.findings)
    assert "empty 100%" in shown(report).replace("│ ", "")


class FailingVerifier:
    """A verifier whose verdicts end in one status for one gold answer, and are right for the others."""

    format: ResponseFormat = "think-answer"
    tags = Tags()

    def __init__(self, status: Status, gold: str) -> None:
        self.failed = Verdict(status=status, grade=0.0, verified=False, well_formatted=True, detail="disk on fire")
        self.gold = gold

    def verify(self, responses, golds, **_) -> list[Verdict]:
        right = Verdict(status=Status.OK, grade=1.0, verified=True, well_formatted=True)
        return [self.failed if gold == self.gold else right for gold in golds]


def test_preflight_tells_a_failing_verifier_from_wrong_answers(look, problems):
    few = [replace(problem, answer="8" if i < 2 else "7") for i, problem in enumerate(problems[:10])]
    for status, what in (
        (Status.ERROR, "{}% of responses could not be graded"),
        (Status.TIMEOUT, "{}% of responses could not be graded"),
        (Status.UNPARSED, "{}% of responses keep the format and hold no answer that can be parsed"),
    ):
        report = look(MIXED, judge=FailingVerifier(status, "7"), num_samples=2)
        assert (report.stops, finding_of(report, what.format(100)).endswith("(disk on fire)")) == (True, True)
        report = look(MIXED, few, FailingVerifier(status, "8"), num_samples=2)
        assert (report.stops, bool(finding_of(report, what.format(20)))) == (False, True)


def test_preflight_draws_its_problems_from_all_of_them(look, problems):
    drawn = [int(problem.id[1:]) for problem in look(MIXED, num_problems=10, num_samples=2).problems]
    assert drawn == sorted(set(drawn))
    assert (len(drawn), max(drawn) >= 20) == (10, True)  # the first ten of a sorted file would say little of it
    few = look(MIXED, problems[:3], num_problems=10, num_samples=2)
    assert [problem.id for problem in few.problems] == ["p0", "p1", "p2"]


def test_preflight_samples_as_training_does(look, tokenizer):
    """Without these settings 45% of the responses are right. Under each of them every response is empty."""
    changes = {"=": {"<eos>": 0.55, "<think>": 0.45}, **RIGHT}
    look(changes).raise_if_stop()
    think = tokenizer.convert_tokens_to_ids("<think>")
    for kwargs in ({"top_k": 1}, {"min_p": 0.9}, {"do_sample": False}, {"suppress_tokens": [think]}):
        assert finding_of(
            look(changes, sampling={"generation_kwargs": kwargs}), "100% of responses are not in the format"
        )
    ends = {"eos_token_id": tokenizer.convert_tokens_to_ids("work"), "max_new_tokens": 2}
    report = look(RIGHT, sampling={"generation_kwargs": ends})
    assert report.shares[CUT_OFF] == 0.0
    assert {response.num_tokens for group in report.groups for response in group} == {2}
    assert look({"<answer>": {"7": 0.6, "3": 0.4}}, sampling={"temperature": 0.01}).shares[CORRECT] == 1.0


def test_render_shows_fractions_and_findings(look, problems):
    # A text in brackets is no markup.
    text = shown(look(WRONG, [replace(problem, id=f"[red]{problem.id}") for problem in problems[:3]], num_samples=2))
    assert "Preflight: 3 problems, 2 responses each" in text
    assert "groups all wrong │ 100% │" in text
    assert "badly formatted │ 0% │" in text
    assert "WARN: 100% of groups hold no correct response. The problems are too hard" in text
    assert "For example problem '[red]p0', gold '7': '<think> work </think> <answer> 3 </answer>'" in text
