"""Sums of u_t over the tokens of each response: streaming; tokens may be spread over ranks."""

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from gar.core.arguments import ScoredTokens, Signal
from gar.core.gradients import mean_rows, strongest_tokens


class ResponseSums:
    """Adds tokens to their responses. Tokens of a response with a `keep_fraction` below 1 are held until the end.

    Args:
        tokens: This rank's tokens.
        signal: `keep_fraction` sets how many tokens of a response are averaged.
        context_group: Ranks that hold other tokens of the same responses; None where this rank has all of them.
        parts_group: Ranks whose parts of the same u_t add up to it; None where this rank has the whole u_t.
    """

    def __init__(
        self,
        tokens: ScoredTokens,
        signal: Signal,
        *,
        context_group: dist.ProcessGroup | None = None,
        parts_group: dist.ProcessGroup | None = None,
    ):
        self._index, self._kept = tokens.response_index, signal.kept(tokens)
        self._context_group, self._parts_group = context_group, parts_group
        self._is_ranked = self._kept[self._index] < 1
        shape = (tokens.num_responses, tokens.hidden.shape[1])
        self._sums = torch.zeros(shape, dtype=torch.float64, device=tokens.hidden.device)
        self._ranked: list[Tensor] = []

    def add(self, rows: slice, u: Tensor) -> None:
        """Add the u_t at `rows`, or this rank's part of them. All ranks of `parts_group` add the same rows."""
        is_ranked = self._is_ranked[rows]
        self._sums.index_add_(0, self._index[rows][~is_ranked], u[~is_ranked].double())
        if bool(is_ranked.any()):
            self._ranked.append(self._whole(u[is_ranked]))

    def means(self) -> Tensor:
        """The mean of each response, float32 [responses, hidden], the same on all ranks; a zero row without tokens."""
        sums = self._whole(self._sums)
        counts = torch.bincount(self._index[~self._is_ranked], minlength=len(sums)).double()
        if bool((self._kept < 1).any()):
            u, index = torch.cat(self._ranked) if self._ranked else sums[:0], self._index[self._is_ranked]
            strongest = _strongest_on_this_rank(u.norm(dim=-1), index, self._kept, self._context_group)
            sums.index_add_(0, index[strongest], u[strongest].double())
            counts += torch.bincount(index[strongest], minlength=len(sums))
        if self._context_group is not None:
            dist.all_reduce(sums, group=self._context_group)
            dist.all_reduce(counts, group=self._context_group)
        return mean_rows(sums, counts)

    def _whole(self, part: Tensor) -> Tensor:
        if self._parts_group is not None:
            dist.all_reduce(part, group=self._parts_group)
        return part


def gather_tokens(
    rows: Float[Tensor, "mine hidden"], group: dist.ProcessGroup | None = None
) -> Float[Tensor, "tokens hidden"]:
    """Gather the rows of all ranks of a group, in the order of ranks. Ranks may hold different numbers of rows.

    Args:
        rows: This rank's rows.
        group: The ranks; None for all.
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


def _strongest_on_this_rank(
    norms: Tensor, index: Tensor, kept: Tensor, context_group: dist.ProcessGroup | None
) -> Tensor:
    """Mask of this rank's tokens that are among the strongest of their response on all ranks of the context group."""
    if context_group is None:
        return strongest_tokens(norms, index, kept)
    rank = dist.get_rank(context_group)
    ranks = torch.full_like(norms, rank)
    gathered = gather_tokens(torch.stack([norms, index.to(norms), ranks], dim=1).double(), context_group)
    return strongest_tokens(gathered[:, 0], gathered[:, 1].long(), kept)[gathered[:, 2] == rank]
