"""Rewards and advantages of single tokens: Grad2Reward's attribution of a judge's verdict, and returns.

Everything is computed and returned in float64, [responses, tokens] unless said otherwise. A mask is True for the tokens
of a response that count. Entries outside of it may be anything, NaN included, and are 0 in every result.
"""

from math import isfinite

import torch
from torch import Tensor

from gar.core import group_advantages


def attribution_weights(scores: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Share of each token in its response's verdict: softmax over the response of standardized scores / temperature.

    Scores are `b_t = g_t . e_t`, gradient of the judge's log-probability of "True" times embedding. They are
    standardized (mean 0, population standard deviation 1 over the response's counted tokens) because their scale
    depends on the judge.

    Args:
        scores: b_t.
        mask: The counted tokens.
        temperature: tau, not stated in the paper. A large tau gives equal shares.

    Returns:
        Rows that sum to 1. A zero row for a response without counted tokens. Equal shares where all scores of a
        response are equal.

    Raises:
        ValueError: A counted score is not finite, or `temperature` is not positive.

    References:
        Grad2Reward, arXiv 2602.01791. The ddof of 0 is ours.

    Example:
        >>> attribution_weights(torch.tensor([[3.0, 1.0, 7.0]]), torch.tensor([[True, True, False]]))
        tensor([[0.8808, 0.1192, 0.0000]], dtype=torch.float64)
    """
    if not (temperature > 0 and isfinite(temperature)):
        raise ValueError(f"temperature must be finite and positive, got {temperature}")
    values = _counted("scores", scores, mask)
    counts = mask.sum(-1, keepdim=True).clamp(min=1)
    deviations = (values - values.sum(-1, keepdim=True) / counts).where(mask, 0.0)
    stds = (deviations.square().sum(-1, keepdim=True) / counts).sqrt()
    logits = deviations / stds.where(stds > 0, 1.0) / temperature
    shares = logits.masked_fill(~mask, -torch.inf).softmax(-1)
    return shares.where(mask, 0.0)  # without counted tokens the softmax is NaN


def effective_token_counts(weights: Tensor) -> Tensor:
    """How many tokens share the verdict, [responses]: `1 / sum_t alpha_t^2`, from 1 (one token has it all) to all.

    0 for a row of zeros.

    Example:
        >>> effective_token_counts(torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))
        tensor([2., 1.], dtype=torch.float64)
    """
    squares = weights.double().square().sum(-1)
    return torch.where(squares == 0, 0.0, 1.0 / squares)


def attributed_rewards(weights: Tensor, outcomes: Tensor, penalty: Tensor, mask: Tensor) -> Tensor:
    """Grad2Reward's reward of each token: `alpha_t V`, plus `V + penalty` on the last token.

    Args:
        weights: alpha, from `attribution_weights`.
        outcomes: V, [responses], usually 1 for an eligible response and 0 otherwise.
        penalty: [responses], usually -0.6 for a badly formatted response and 0 otherwise.
        mask: The counted tokens.

    Returns:
        A row sums to `2 V + penalty`. A response without counted tokens gets a zero row.

    Raises:
        ValueError: A counted value is not finite.

    References:
        Grad2Reward, arXiv 2602.01791.

    Example:
        >>> alpha, mask = torch.tensor([[0.25, 0.75, 0.0]]), torch.tensor([[True, True, False]])
        >>> attributed_rewards(alpha, torch.tensor([1.0]), torch.tensor([0.0]), mask)
        tensor([[0.2500, 1.7500, 0.0000]], dtype=torch.float64)
    """
    shared = _counted("weights", weights, mask) * outcomes.double()[:, None]
    return shared.where(mask, 0.0) + last_token_rewards(outcomes.double() + penalty.double(), mask)


def returns_to_go(token_rewards: Tensor, mask: Tensor) -> Tensor:
    """Return of each token: `R_t = sum_{s >= t} r_s` over the response's counted tokens, undiscounted.

    Raises:
        ValueError: A counted reward is not finite.

    Example:
        >>> returns_to_go(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[True, True, False]]))
        tensor([[3., 2., 0.]], dtype=torch.float64)
    """
    return _counted("token_rewards", token_rewards, mask).flip(-1).cumsum(-1).flip(-1).where(mask, 0.0)


def last_token_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Each response's reward, [responses], on its last counted token, and 0 elsewhere.

    Raises:
        ValueError: The reward of a response with counted tokens is not finite.

    Example:
        >>> last_token_rewards(torch.tensor([5.0]), torch.tensor([[True, True, False]]))
        tensor([[0., 5., 0.]], dtype=torch.float64)
    """
    still_to_come = mask.flip(-1).cumsum(-1).flip(-1)
    return _counted("rewards", rewards[:, None].expand(mask.shape), mask & (still_to_come == 1))


def group_token_advantages(
    values: Tensor, mask: Tensor, group_index: Tensor, *, ddof: int, eps: float, min_std: float = 0.0
) -> Tensor:
    """Grad2Reward's advantage: `group_advantages` with a group's counted tokens in place of its responses.

    Args:
        values: Usually returns-to-go.
        mask: The counted tokens.
        group_index: Which problem a response answers, [responses]. Any integers, any order.
        ddof: 0 population, 1 Bessel, on the group's number of counted tokens.
        eps: Added to the standard deviation.
        min_std: Smallest standard deviation to divide by.

    Returns:
        Exactly 0 in a group with equal counted values, and in a group of one counted token. In a group of one
        response, tokens are compared with each other.

    Raises:
        ValueError: A counted value is not finite, or a setting is out of range.

    References:
        Grad2Reward, arXiv 2602.01791: z-score over all tokens of a group. ddof and eps are not stated there.
    """
    counted = _counted("values", values, mask)[mask]
    groups = group_index[:, None].expand_as(mask)[mask]
    advantages = torch.zeros_like(values, dtype=torch.float64)
    advantages[mask] = group_advantages(counted, groups, scale="std", ddof=ddof, eps=eps, min_std=min_std)
    return advantages


def _counted(name: str, values: Tensor, mask: Tensor) -> Tensor:
    """Values in float64, 0 outside of the mask."""
    bad = ~values.isfinite() & mask
    if bool(bad.any()):
        response, token = bad.nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {values[response, token].item()} at response {response}, token {token}"
        )
    return values.double().where(mask, 0.0)
