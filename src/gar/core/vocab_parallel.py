"""Gradient-activation vectors where the LM head is split over ranks by rows, as tensor parallelism splits it.

Rank r holds the rows W_r of W. A token needs two numbers from all ranks: its target's logit z_y, which one rank knows,
and `Z = sum over v != y of exp(z_v - z_y - 20)`. After them everything is linear in the shards,

    dCE/dh = (1 - p_y) (sum_r (E_r W_r) / Z - W_y),

so each rank sums its part over the tokens of a response, and one reduction of [responses, hidden] completes the sums.
Thanks to the margin of 20, ranks need not exchange the largest logit, except for tokens with log p_y below about -108.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Float32, Int
from torch import Tensor

from gar.core.arguments import Budget, Head, Precision, ScoredTokens, Signal, SignalKind, check_arguments
from gar.core.closed_form import SoftmaxSums
from gar.core.gradients import token_contributions
from gar.core.head import REFERENCE_MARGIN, Plan, exponential_sums, largest_logits, logits_of, make_plan
from gar.core.response_sums import ResponseSums


class VocabShard(NamedTuple):
    """The rows of the LM head that this rank holds.

    Attributes:
        first_id: Token id of the first row.
        vocab_size: Number of token ids of the whole head. Further rows are padding and are ignored; where the policy's
            own softmax counts them, give the padded size.
        group: The ranks that hold all rows together; None for all ranks.
    """

    first_id: int
    vocab_size: int
    group: dist.ProcessGroup | None = None


class _Facts(NamedTuple):
    """The facts that the ranks of a vocabulary group compare before the first reduction."""

    fault: str | None
    first_id: int
    end_id: int
    vocab_size: int
    num_responses: int
    tokens: int


@torch.no_grad()
def vocab_parallel_means(
    hidden: Float[Tensor, "tokens hidden"],
    weight_shard: Float[Tensor, "rows hidden"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    *,
    shard: VocabShard,
    num_responses: int,
    signal: SignalKind = "gradient-activation",
    bias_shard: Float[Tensor, " rows"] | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    keep_fraction: float | Float[Tensor, " responses"] = 1.0,
    context_group: dist.ProcessGroup | None = None,
    precision: Precision = "auto",
    chunk_tokens: int | None = None,
) -> Float32[Tensor, "responses hidden"]:
    """Mean gradient-activation vector `s` of each response, the same on all ranks; `unit_rows` scales to unit length.

    Equals `gradient_activation_means` on the whole head and all tokens. A collective: all ranks call it together.
    The ranks of `shard.group` exchange two numbers per token (8 bytes; 12 where log p_y < -108), one float64 tensor
    [responses, hidden], and u_t of the tokens of responses with a `keep_fraction` under 1.

    Args:
        hidden: Inputs of the LM head, the same tokens on all ranks of `shard.group`. Under sequence parallelism, gather
            them first with `gather_tokens`.
        weight_shard: This rank's rows of W; possibly none.
        target_ids: Token ids of the whole vocabulary.
        response_index: The response that a token belongs to, in [0, num_responses).
        shard: Position of the rows in the head, and the ranks that hold the others.
        num_responses: Rows of the result, the same on all ranks.
        signal: As in `gradient_activation_vectors`.
        bias_shard: This rank's part of the head's bias.
        temperature: Divides the logits.
        logit_scale: Multiplies W h + bias.
        logit_softcap: `cap * tanh(z / cap)`.
        activation_threshold: tau_a.
        keep_fraction: p_f. Between equal norms on two ranks of `context_group`, the lower rank's token is kept.
        context_group: Ranks that hold other tokens of the same responses (context parallelism); sums and counts are
            added over them. None where this rank has all tokens.
        precision: Precision of the products with W.
        chunk_tokens: Largest number of tokens whose logits exist at one time; the same on all ranks.

    Raises:
        ValueError: As `gradient_activation_vectors`; shards overlap or leave token ids out; ranks differ in tokens or
            responses. Raised on all ranks, whichever has the fault: otherwise the other ranks would wait forever.

    References:
        GAR, arXiv 2609.03342, eqs. 2-4; the split is ours.
    """
    tokens = ScoredTokens(hidden, target_ids, response_index, num_responses)
    head = Head(weight_shard, bias_shard, temperature, logit_scale, logit_softcap)
    chosen_signal = Signal(signal, activation_threshold, keep_fraction)
    plan = fault = None
    try:
        plan = _checked_plan(tokens, head, shard, chosen_signal, Budget(chunk_tokens=chunk_tokens, precision=precision))
    except ValueError as refusal:
        fault = str(refusal)
    end_id = max(shard.first_id, min(shard.first_id + len(weight_shard), shard.vocab_size))
    facts = _Facts(fault, shard.first_id, end_id, shard.vocab_size, num_responses, len(hidden))
    _agree(facts, shard, context_group)
    assert plan is not None
    part = _without_padding(head, shard)

    def hidden_gradients(rows: slice, h: Tensor) -> Tensor:
        return _hidden_gradients(h, target_ids[rows] - shard.first_id, part, plan, shard.group)

    # For signal "hidden" each rank has the whole of u_t, else a part.
    parts_group = None if signal == "hidden" else shard.group or dist.group.WORLD
    sums = ResponseSums(tokens, chosen_signal, context_group=context_group, parts_group=parts_group)
    for rows, u in token_contributions(hidden, chosen_signal, plan, hidden_gradients):
        sums.add(rows, u)
    return sums.means()


def _hidden_gradients(h: Tensor, targets: Tensor, head: Head, plan: Plan, group: dist.ProcessGroup | None) -> Tensor:
    """This rank's part of `dCE/dh_t`. `targets` count from its first row; those out of range are on another rank."""
    is_local = (targets >= 0) & (targets < len(head.weight))
    target_rows = torch.zeros_like(h)
    target_rows[is_local] = head.weight[targets[is_local]].to(h.dtype)
    target_raw = (h * target_rows).sum(-1)
    if head.bias is not None:
        target_raw[is_local] += head.bias[targets[is_local]].to(h.dtype)
    target_raw.masked_fill_(~is_local, 0.0)  # infinity times 0 is NaN
    dist.all_reduce(target_raw, group=group)
    target_logits, target_slopes = logits_of(target_raw, head)
    reference = target_logits + REFERENCE_MARGIN
    total, weighted = _sums(h, targets, head, plan, reference, group)
    overflowed = ~total.isfinite()  # identical on all ranks, as all_reduce guarantees
    if bool(overflowed.any()):
        subset, ids = h[overflowed], targets[overflowed]
        largest = subset.new_full((len(subset),), -torch.inf)
        if len(head.weight):
            largest = largest_logits(subset, head, plan)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        reference[overflowed] = largest
        total[overflowed], weighted[overflowed] = _sums(subset, ids, head, plan, largest, group)
    at_target = (target_logits - reference).exp()
    return SoftmaxSums.of(total, at_target, weighted, target_slopes).hidden_gradients(target_rows)


def _sums(
    h: Tensor, targets: Tensor, head: Head, plan: Plan, reference: Tensor, group: dist.ProcessGroup | None
) -> tuple[Tensor, Tensor]:
    """Over v != y: `sum exp(z_v - ref)` over all ranks, and `sum exp(z_v - ref) slope_v W_v` over this rank's rows."""
    total, weighted = torch.zeros_like(reference), torch.zeros_like(h)
    if len(head.weight):
        total, _, weighted = exponential_sums(h, targets, head, reference, plan)
    total[~weighted.isfinite().all(-1)] = torch.inf  # an overflow here must show on all ranks
    dist.all_reduce(total, group=group)
    return total, weighted


def _without_padding(head: Head, shard: VocabShard) -> Head:
    rows = max(0, shard.vocab_size - shard.first_id)
    return head._replace(weight=head.weight[:rows], bias=None if head.bias is None else head.bias[:rows])


def _checked_plan(tokens: ScoredTokens, head: Head, shard: VocabShard, signal: Signal, budget: Budget) -> Plan:
    """Check this rank's arguments as `gradient_activation_vectors` does.

    The plan is that of the whole head, so that all ranks have the same chunks.
    """
    rows, width = head.weight.shape
    if head.bias is not None and head.bias.shape != (rows,):
        raise ValueError(
            f"bias_shard must have one entry per row of the shard, expected {rows}, got {tuple(head.bias.shape)}"
        )
    whole = head._replace(weight=head.weight.new_empty(1, 1).expand(shard.vocab_size, width), bias=None)
    check_arguments(tokens, whole, signal)
    return make_plan(tokens.hidden, whole, budget)._replace(triton=False)


def _agree(facts: _Facts, shard: VocabShard, context_group: dist.ProcessGroup | None) -> None:
    """Raise the fault of one rank, or a disagreement, on all ranks."""
    fault = _disagreement(_gathered(facts, shard.group))
    if context_group is not None:
        others = _gathered((fault, facts.num_responses), context_group)
        counts = sorted({count for _, count in others})
        fault = next((f"{text} (and this rank of the context group with it)" for text, _ in others if text), None)
        if fault is None and len(counts) > 1:
            fault = f"the ranks of a context group must have the same num_responses, got {counts}"
    if fault is not None:
        raise ValueError(fault)


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
    """The facts of all ranks of a group, in the order of ranks."""
    facts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(facts, fact, group=group)
    return facts
