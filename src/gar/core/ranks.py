"""Processes that share the work on vectors: the parts they hold, their exchanges, and errors that all of them raise."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from gar.core.arguments import Head, ScoredTokens


class VocabShard(NamedTuple):
    """The rows of the LM head that this rank holds, if tensor parallelism splits the head by rows.

    Attributes:
        first_id: Token id of the first row.
        vocab_size: Number of token ids of the whole head. Further rows are padding and are ignored. If the policy's
            own softmax counts them, give the padded size.
        group: The ranks that hold all rows together. None for all ranks.
    """

    first_id: int
    vocab_size: int
    group: dist.ProcessGroup | None = None


class Ranks(NamedTuple):
    """This rank's part of the head and of the tokens, and the ranks with the other parts.

    Attributes:
        vocab: This rank's rows of the head. None if it holds the whole head.
        context: Ranks that hold other tokens of the same responses (context or sequence parallelism). None if this
            rank has them all.
    """

    vocab: VocabShard | None = None
    context: dist.ProcessGroup | None = None

    def own_rows(self, head: Head) -> Head:
        """The head's rows on this rank without padding. Possibly none."""
        if self.vocab is None:
            return head
        rows = max(0, self.vocab.vocab_size - self.vocab.first_id)
        return head._replace(weight=head.weight[:rows], bias=None if head.bias is None else head.bias[:rows])

    def add_parts(self, part: Tensor) -> Tensor:
        """Add up the parts of all ranks of a split head, in place."""
        if self.vocab is not None:
            dist.all_reduce(part, group=self.vocab.group)
        return part

    def largest(self, values: Tensor) -> Tensor:
        """The largest values over all ranks of a split head, in place."""
        if self.vocab is not None:
            dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.vocab.group)
        return values

    def add_context(self, values: Tensor) -> Tensor:
        """Add up the values of all ranks of a split context, in place."""
        if self.context is not None:
            dist.all_reduce(values, group=self.context)
        return values

    def agree(self, fault: str | None, tokens: ScoredTokens, head: Head) -> None:
        """Raise one rank's fault, or a disagreement, on all ranks. Otherwise the others would wait forever."""
        if self.vocab is not None:
            first_id, vocab_size, group = self.vocab
            end_id = max(first_id, min(first_id + len(head.weight), vocab_size))
            facts = _Facts(fault, first_id, end_id, vocab_size, tokens.num_responses, len(tokens.hidden))
            fault = _disagreement(_gathered(facts, group))
        if self.context is not None:
            others = _gathered((fault, tokens.num_responses), self.context)
            counts = sorted({count for _, count in others})
            fault = next((f"{text} (and this rank of the context group with it)" for text, _ in others if text), None)
            if fault is None and len(counts) > 1:
                fault = f"the ranks of a context group must have the same num_responses, got {counts}"
        if fault is not None:
            raise ValueError(fault)


class _Facts(NamedTuple):
    """The facts that the ranks of a split head compare before the first reduction."""

    fault: str | None
    first_id: int
    end_id: int
    vocab_size: int
    num_responses: int
    tokens: int


def _disagreement(facts: list[_Facts]) -> str | None:
    """The fault of a vocabulary group, from the facts of its ranks."""
    for rank, fact in enumerate(facts):
        if fact.fault is not None:
            return f"{fact.fault} (on rank {rank} of the vocabulary group)"
    for name in ("vocab_size", "num_responses"):
        values = [getattr(fact, name) for fact in facts]
        if len(set(values)) > 1:
            return f"the ranks of a vocabulary group must have the same {name}, got {values}"
    spans = sorted((fact.first_id, fact.end_id) for fact in facts if fact.end_id > fact.first_id)
    vocab_size = facts[0].vocab_size
    if [0, *(end for _, end in spans)] != [*(first for first, _ in spans), vocab_size]:
        return (
            f"the shards must hold each token id of [0, {vocab_size}) once, got "
            f"{', '.join(f'[{first}, {end})' for first, end in spans)}. Does first_id count the rows of all earlier "
            "shards?"
        )
    tokens = [fact.tokens for fact in facts]
    if len(set(tokens)) > 1:
        return (
            f"the ranks of a vocabulary group must hold the same tokens, got {tokens}. Is hidden split by sequence? "
            "Then gather_tokens first."
        )
    return None


def _gathered(fact: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """The facts of all ranks of a group."""
    facts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(facts, fact, group=group)
    return facts


def gather_tokens(
    rows: Float[Tensor, "mine hidden"], group: dist.ProcessGroup | None = None
) -> Float[Tensor, "tokens hidden"]:
    """Gather the rows of all ranks of a group, in the order of ranks. Ranks may hold different numbers of rows.

    Args:
        rows: This rank's rows.
        group: The ranks. None for all.
    """
    size = dist.get_world_size(group)
    counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device), group=group)
    most = max(int(count) for count in counts)
    padded = rows.new_zeros(most, rows.shape[1])
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(gathered, padded, group=group)
    return torch.cat([part[: int(count)] for part, count in zip(gathered, counts, strict=True)])
