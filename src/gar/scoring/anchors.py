"""The anchors that a response is compared with: its problem's own, or a control's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from gar.core import shuffled_groups
from gar.methods.base import AlignmentSource
from gar.rollouts.generate import encode_prompt
from gar.sequences import SequenceReader, TokenSequence
from gar.types import Problem


class UsableAnchors(NamedTuple):
    """Problems without the anchors that cannot be scored.

    Attributes:
        problems: All problems, in order, each with its usable anchors.
        without_tokens: Ids of problems with an anchor without a token to score, for example special tokens alone.
        too_long: Ids of problems with an anchor that does not fit into the model's context with its prompt.
    """

    problems: list[Problem]
    without_tokens: list[str]
    too_long: list[str]

    def __str__(self) -> str:
        """The anchors left out and the reasons, in words; empty where there are none."""
        parts = [
            f"{len(ids)} expert solutions {fault}, of {', '.join(ids[:3] + ['...'] * (len(ids) > 3))}"
            for ids, fault in (
                (self.without_tokens, "without a token to score"),
                (self.too_long, "that with their prompt exceed the model's context"),
            )
            if ids
        ]
        return f"Left out: {'; '.join(parts)}." if parts else ""


def usable_anchors(
    problems: Sequence[Problem],
    tokenizer: Any,
    reader: SequenceReader,
    *,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> UsableAnchors:
    """Leave out anchors that can never be scored, so that a problem without another counts as one without an anchor.

    Args:
        problems: The data set.
        tokenizer: The policy's tokenizer.
        reader: A reader of this tokenizer, with the model's context.
        chat_template_kwargs: As in `encode_prompt`.
    """
    kept: list[Problem] = []
    without_tokens: list[str] = []
    too_long: list[str] = []
    for problem in problems:
        prompt_ids = (
            encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=chat_template_kwargs)
            if problem.anchors
            else []
        )
        usable = []
        for anchor in problem.anchors:
            fault = reader.fault(reader.anchor(prompt_ids, anchor.text))
            if fault is None:
                usable.append(anchor)
            else:
                (without_tokens if fault == "no tokens" else too_long).append(problem.id)
        kept.append(problem if len(usable) == len(problem.anchors) else replace(problem, anchors=tuple(usable)))
    return UsableAnchors(kept, without_tokens, too_long)


class AnchorReader:
    """Anchors of a data set's problems as sequences to score.

    Under "shuffled-anchor" each problem with anchors gets the anchors and the prompt of another problem: the same one
    throughout a run, and on every rank. The only problem of a data set keeps its own anchors.

    Args:
        problems: The data set.
        tokenizer: The policy's tokenizer.
        reader: A reader of this tokenizer.
        source: "shuffled-anchor" takes another problem's anchors; all others take the problem's own.
        seed: Seed of the shuffle.
        chat_template_kwargs: As in `encode_prompt`, for the prompt of the other problem under "shuffled-anchor".
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
