"""Seven groups of rollouts of the embedded model, one of every kind, for every engine."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gar.data.arithmetic import load_arithmetic, write_solution
from gar.models.embedded import load_embedded
from gar.response import TokenSequence
from gar.types import Problem

GROUP_SIZE = 4

GROUPS = {
    "all wrong": ("wrong", "wrong", "wrong", "wrong"),
    "one right": ("wrong", "right", "wrong", "wrong"),
    "all right": ("right", "right", "right", "right"),
    "bad format": ("right", "right", "unopened", "wrong"),
    "missing anchor": ("right", "right", "right", "wrong"),
    "a response without signal": ("right", "right", "unthinking", "wrong"),
    "tool output": ("right", "called", "echoed", "wrong"),
}
"""Kinds: right, wrong, right without the opening tag (unopened), right without a thought (unthinking), right
with a tool's answer within the thought (called), and wrong with a tool's right answer after it (echoed)."""

_WAYS = (("stepwise", "symbols"), ("running", "words"), ("guess", "symbols"), ("guess", "words"))


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A response of a known kind. `sequence.positions` are the tokens between the thinking tags."""

    group: str
    kind: str
    problem: Problem
    text: str
    sequence: TokenSequence

    @property
    def group_index(self) -> int:
        return list(GROUPS).index(self.group)

    @property
    def verified(self) -> bool:
        return self.kind not in ("wrong", "echoed")

    @property
    def well_formatted(self) -> bool:
        return self.kind != "unopened"


@cache
def make_rollouts() -> list[Rollout]:
    """All responses, group by group."""
    rollouts = []
    for (group, kinds), problem in zip(GROUPS.items(), make_problems(), strict=True):
        for kind, way in zip(kinds, _WAYS, strict=True):
            text = _response(problem, kind, way)
            sequence = encode(problem.prompt, text, ending=[tokenizer().eos_token_id])
            if kind in ("called", "echoed"):
                sequence, text = with_tool(problem, kind, sequence)
            rollouts.append(Rollout(group=group, kind=kind, problem=problem, text=text, sequence=sequence))
    return rollouts


@cache
def make_problems() -> list[Problem]:
    """The problem of each group, with its expert solution; one has none."""
    problems = load_arithmetic("train")[: len(GROUPS)]
    return [
        replace(problem, anchors=()) if group == "missing anchor" else problem
        for group, problem in zip(GROUPS, problems, strict=True)
    ]


@cache
def tokenizer() -> Any:
    return load_embedded()[1]


def encode(prompt: str, text: str, *, ending: list[int] | None = None) -> TokenSequence:
    """The tokens of a response, and the positions between its thinking tags."""
    opening, closing = tokenizer().convert_tokens_to_ids(["<think>", "</think>"])
    ids = tokenizer().encode(text)
    thinking = range(ids.index(opening) + 1, ids.index(closing)) if opening in ids else range(0)
    return TokenSequence(context_ids=tokenizer().encode(prompt), ids=[*ids, *(ending or [])], positions=thinking)


def with_tool(problem: Problem, kind: str, sequence: TokenSequence) -> tuple[TokenSequence, str]:
    """A response with a tool's output, tags included, within its thought or after its end, and its text without it."""
    output = tokenizer().encode(f"<think> </think> <answer> {problem.answer} </answer>")
    place = sequence.positions[len(sequence.positions) // 2] if kind == "called" else len(sequence.ids)
    before, after = sequence.ids[:place], sequence.ids[place:]
    whole = TokenSequence(
        context_ids=sequence.context_ids,
        ids=[*before, *output, *after],
        positions=[i if i < place else i + len(output) for i in sequence.positions],
        mask=[1] * len(before) + [0] * len(output) + [1] * len(after),
    )
    turns = [[token for token in turn if token != tokenizer().eos_token_id] for turn in (before, after)]
    return whole, "\n".join(tokenizer().decode(turn) for turn in turns if turn)


def _response(problem: Problem, kind: str, way: tuple) -> str:
    text = write_solution(problem, *way)
    if kind in ("wrong", "echoed"):
        return text.replace(f"<answer> {problem.answer} ", f"<answer> {(int(problem.answer) + 1) % 10} ")
    if kind == "unopened":
        return text.removeprefix("<think> ")
    if kind == "unthinking":
        return "<think> </think>" + text.partition("</think>")[2]
    return text
