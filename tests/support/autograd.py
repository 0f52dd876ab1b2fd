"""The second route to gradient-activation vectors: the model's own loss, its own head, float64 and autograd."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gar.response import TokenSequence


def own_means(
    model: Any,
    sequences: Sequence[TokenSequence],
    *,
    kind: str = "gradient-activation",
    temperature: float = 1.0,
) -> Tensor:
    """For each sequence alone, unpadded and whole: dL/dh of its scored tokens' mean cross-entropy, times h, summed.

    Nothing of ours takes part: a hook makes what enters the LM head a leaf, and the model computes its logits.
    """
    model = copy.deepcopy(model).double().eval()
    model.requires_grad_(False)
    leaves: list[Tensor] = []

    def make_leaf(head: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        leaves.append(args[0].detach().requires_grad_())
        return (leaves[-1],)

    model.get_output_embeddings().register_forward_pre_hook(make_leaf)
    rows = []
    for sequence in sequences:
        ids = torch.tensor([[*sequence.context_ids, *sequence.ids]])
        logits = model(input_ids=ids).logits[0]
        at = torch.tensor([len(sequence.context_ids) + position for position in sequence.positions])
        loss = F.cross_entropy(logits[at - 1].double() / temperature, ids[0, at])
        hidden = leaves[-1]
        (gradient,) = torch.autograd.grad(loss, hidden)
        u = (gradient * hidden.detach() if kind == "gradient-activation" else gradient)[0, at - 1]  # over n
        rows.append(u.sum(0))
    return torch.stack(rows)


def largest_distance(found: Tensor, expected: Tensor) -> float:
    """The largest of `||found - expected|| / ||expected||` over rows."""
    difference = (found.double() - expected.double()).norm(dim=-1)
    return float((difference / expected.double().norm(dim=-1)).max())


def random_sequences(
    vocab: int, shapes: Sequence[tuple[int, int, Sequence[int]]], seed: int = 0
) -> list[TokenSequence]:
    """Random token ids; each shape is (context tokens, tokens, scored positions)."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(vocab, (count,), generator=generator).tolist()

    return [
        TokenSequence(context_ids=ids(context), ids=ids(count), positions=list(positions))
        for context, count, positions in shapes
    ]
