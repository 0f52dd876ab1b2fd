"""The anchors that a response is compared with: its problem's own, or a control's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from gar.core import shuffled_groups
from gar.methods.base import AlignmentSource
from gar.rollouts.generate import encode_prompt
from gar.sequences import SequenceReader, TokenSequence
from gar.types import Problem

_FAULTS = {
    "no tokens": "without a token to score",
    "too long": "that with their prompt exceed the model's context",
}


def usable_anchors(
    problems: Sequence[Problem],
    tokenizer: Any,
    reader: SequenceReader,
    *,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> tuple[list[Problem], str]:
    """Leave out anchors that can never be scored.

    Args:
        problems: The data set.
        tokenizer: The policy's tokenizer.
        reader: A reader of this tokenizer, with the model's context.
        chat_template_kwargs: As in `encode_prompt`.

    Returns:
        All problems, in order, each with its usable anchors, and a sentence about those left out ("" for none).
    """
    kept: list[Problem] = []
    left_out: dict[str, list[str]] = {fault: [] for fault in _FAULTS}
    for problem in problems:
        prompt = problem.prompt if problem.anchors else ""
        prompt_ids = encode_prompt(tokenizer, prompt, chat_template_kwargs=chat_template_kwargs)
        faults = [reader.fault(reader.anchor(prompt_ids, anchor.text)) for anchor in problem.anchors]
        usable = tuple(anchor for anchor, fault in zip(problem.anchors, faults, strict=True) if fault is None)
        kept.append(problem if len(usable) == len(faults) else replace(problem, anchors=usable))
        for fault in filter(None, faults):
            left_out[fault].append(problem.id)
    parts = [
        f"{len(ids)} expert solutions {_FAULTS[fault]}, of {', '.join(ids[:3] + ['...'] * (len(ids) > 3))}"
        for fault, ids in left_out.items()
        if ids
    ]
    return kept, f"Left out: {'; '.join(parts)}." if parts else ""


class AnchorReader:
    """Anchors of a data set's problems as sequences to score.

    Under "shuffled-anchor" each problem with anchors gets the anchors and the prompt of another one, which is the same
    throughout a run and on every rank.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        tokenizer: Any,
        reader: SequenceReader,
        *,
        source: AlignmentSource | None,
        seed: int,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ):
        self._problems = problems
        self._tokenizer = tokenizer
        self._reader = reader
        self._chat_template_kwargs = chat_template_kwargs
        self._owner = {i: i for i in range(len(problems))}
        if source == "shuffled-anchor":
            owners = torch.tensor([i for i, problem in enumerate(problems) if problem.anchors], dtype=torch.long)
            others = shuffled_groups(owners, torch.Generator().manual_seed(seed))
            self._owner.update(zip(owners.tolist(), others.tolist(), strict=True))

    def sequences(self, problem_index: int, prompt_ids: Sequence[int]) -> list[TokenSequence]:
        """The anchors of a problem, each after the prompt that it answers."""
        owner = self._problems[self._owner[problem_index]]
        context = prompt_ids
        if self._owner[problem_index] != problem_index:
            context = encode_prompt(self._tokenizer, owner.prompt, chat_template_kwargs=self._chat_template_kwargs)
        return [self._reader.anchor(context, anchor.text) for anchor in owner.anchors]
