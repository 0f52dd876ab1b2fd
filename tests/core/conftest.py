"""Shared by the tests of the arithmetic: random cases, second routes, small tensors, no shape checker."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gar.core import gradient_activation_means, unit_rows


class Case(NamedTuple):
    """Positional arguments of `gradient_activation_means`, in its order."""

    hidden: Tensor
    weight: Tensor
    target_ids: Tensor
    response_index: Tensor


def make_case(
    tokens: int = 23, hidden: int = 8, vocab: int = 37, responses: int = 4, *, seed: int = 0, peak: float = 1.0
) -> Case:
    """Interleaved responses in float64. `peak` scales W: 1 gives flat distributions, 4 confident ones."""
    generator = torch.Generator().manual_seed(seed)
    return Case(
        hidden=torch.randn(tokens, hidden, generator=generator, dtype=torch.float64),
        weight=torch.randn(vocab, hidden, generator=generator, dtype=torch.float64) * peak / hidden**0.5,
        target_ids=torch.randint(vocab, (tokens,), generator=generator),
        response_index=torch.randint(responses, (tokens,), generator=generator),
    )


def autograd_means(
    case: Case,
    *,
    num_responses: int,
    signal: str = "gradient-activation",
    bias: Tensor | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    keep_fraction: float | list[float] = 1.0,
) -> Tensor:
    """The paper's definition for each response, in float64 through real cross-entropy and autograd."""
    kept = [keep_fraction] * num_responses if isinstance(keep_fraction, float) else keep_fraction
    means = torch.zeros(num_responses, case.hidden.shape[1], dtype=torch.float64)
    for response in range(num_responses):
        mine = case.response_index == response
        n = int(mine.sum())
        if n == 0:
            continue
        h = case.hidden[mine].double().requires_grad_()
        logits = F.linear(h, case.weight.double(), None if bias is None else bias.double()) * logit_scale
        if logit_softcap is not None:
            logits = logit_softcap * torch.tanh(logits / logit_softcap)
        loss = F.cross_entropy(logits / temperature, case.target_ids[mine])  # mean over the response's tokens
        (gradient,) = torch.autograd.grad(loss, h)
        h, u = h.detach(), gradient * n  # undo the mean: one row is one token's own gradient
        if signal == "hidden":
            u = h
        elif signal == "gradient-activation":
            counts = h.abs() >= activation_threshold * h.abs().max(-1, keepdim=True).values
            u = u * torch.where(counts, h, 0.0)
        largest_first = sorted(range(n), key=lambda t: -float(u[t].norm()))
        strongest = largest_first[: -int(-round(kept[response] * n, 6) // 1)]  # ceil, blind to the last digits
        means[response] = u[strongest].mean(0)
    return means


def exact_gradients(case: Case) -> tuple[Tensor, Tensor]:
    """W^T (p - e_y) and ln((1 - p_y) / p_y) of each token in float64, without p_y, which rounds to 1 if confident."""
    weight, targets = case.weight.double(), case.target_ids[:, None]
    logits = case.hidden.double() @ weight.T
    others = logits.scatter(1, targets, -torch.inf)
    log_odds = others.logsumexp(-1) - logits.gather(1, targets)[:, 0]
    return log_odds.sigmoid()[:, None] * (others.softmax(-1) @ weight - weight[case.target_ids]), log_odds


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def flags(text: str) -> Tensor:
    return torch.tensor([character == "1" for character in text], dtype=torch.bool)


def one_group(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.long)


def columns(rows: Sequence[tuple], *dtypes: torch.dtype) -> list[Tensor]:
    """One tensor per column of the rows, which may be none."""
    values = zip(*rows, strict=True) if rows else [()] * len(dtypes)
    return [torch.tensor(column, dtype=dtype) for column, dtype in zip(values, dtypes, strict=True)]


def unit_vectors(*arguments: Any, **options: Any) -> Tensor:
    """`gradient_activation_means`, as unit rows."""
    return unit_rows(gradient_activation_means(*arguments, **options))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user: no jaxtyping between the call and our own error texts."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
