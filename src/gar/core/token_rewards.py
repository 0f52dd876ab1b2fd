"""Rewards of single tokens: Grad2Reward's attribution of a judge's verdict, and returns."""

from math import isfinite

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from gar.core.checks import as_given, check_finite, check_shapes


def attribution_weights(
    scores: Shaped[Tensor, "responses tokens"], mask: Bool[Tensor, "responses tokens"], *, temperature: float = 1.0
) -> Float[Tensor, "responses tokens"]:
    """Share of each token in its response's verdict: softmax over the response of standardised scores / temperature.

    Scores are `b_t = g_t . e_t`, gradient of the judge's log-probability of "True" times embedding. They are
    standardised (mean 0, population standard deviation 1 over the response's counted tokens) because their scale
    depends on the judge.

    Args:
        scores: b_t; entries outside `mask` may be anything, NaN included.
        mask: True for the tokens of the response.
        temperature: tau, not stated in the paper. A large tau gives equal shares.

    Returns:
        In `scores`' dtype, torch's default for integers and bool; computed in float64: 0 outside `mask`, rows that sum
        to 1, a zero row for a response without counted tokens. Equal shares where all scores of a response are equal.

    Raises:
        ValueError: Shapes differ, a counted score is not finite, or `temperature` is not positive.

    References:
        Grad2Reward, arXiv 2602.01791; ddof 0 is ours.

    Example:
        >>> attribution_weights(torch.tensor([[3.0, 1.0, 7.0]]), torch.tensor([[True, True, False]]))
        tensor([[0.8808, 0.1192, 0.0000]])
    """
    check_shapes(scores.shape, mask=mask)
    check_finite("scores", scores, mask)
    if not (temperature > 0 and isfinite(temperature)):
        raise ValueError(f"temperature must be finite and positive, got {temperature}")
    counts = mask.sum(-1, keepdim=True).clamp(min=1)
    values = scores.double().where(mask, 0.0)
    deviations = (values - values.sum(-1, keepdim=True) / counts).where(mask, 0.0)
    stds = (deviations.square().sum(-1, keepdim=True) / counts).sqrt()
    logits = deviations / stds.where(stds > 0, 1.0) / temperature
    shares = logits.masked_fill(~mask, -torch.inf).softmax(-1)
    return as_given(shares.where(mask, 0.0), scores)  # without counted tokens the softmax is NaN


def effective_token_counts(weights: Shaped[Tensor, "responses tokens"]) -> Float[Tensor, " responses"]:
    """How many tokens share the verdict: `1 / sum_t alpha_t^2`, from 1 (one token has it all) to their number.

    Returns:
        In `weights`' dtype, torch's default for integers and bool; computed in float64; 0 for a row of zeros.

    Example:
        >>> effective_token_counts(torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))
        tensor([2., 1.])
    """
    squares = weights.double().square().sum(-1)
    return as_given(torch.where(squares == 0, 0.0, 1.0 / squares), weights)


def attributed_rewards(
    weights: Shaped[Tensor, "responses tokens"],
    outcomes: Shaped[Tensor, " responses"],
    penalty: Shaped[Tensor, " responses"],
    mask: Bool[Tensor, "responses tokens"],
) -> Float[Tensor, "responses tokens"]:
    """Grad2Reward's reward of each token: `alpha_t V`, plus `V + penalty` on the last token.

    Args:
        weights: alpha, from `attribution_weights`.
        outcomes: V, usually 1 for an eligible response and 0 otherwise.
        penalty: Usually -0.6 for a badly formatted response and 0 otherwise.
        mask: True for the tokens of the response.

    Returns:
        In `weights`' dtype, torch's default for integers and bool; computed in float64; 0 outside `mask`. A row sums to
        `2 V + penalty`; a response without counted tokens gets a zero row.

    Raises:
        ValueError: Shapes differ or a value is not finite.

    References:
        Grad2Reward, arXiv 2602.01791.

    Example:
        >>> alpha, mask = torch.tensor([[0.25, 0.75, 0.0]]), torch.tensor([[True, True, False]])
        >>> attributed_rewards(alpha, torch.tensor([1.0]), torch.tensor([0.0]), mask)
        tensor([[0.2500, 1.7500, 0.0000]])
    """
    check_shapes(mask.shape, weights=weights)
    check_shapes(mask.shape[:1], outcomes=outcomes, penalty=penalty)
    check_finite("weights", weights, mask)
    check_finite("outcomes", outcomes)
    check_finite("penalty", penalty)
    shared = (weights.double() * outcomes.double()[:, None]).where(mask, 0.0)
    return as_given(shared + last_token_rewards(outcomes.double() + penalty.double(), mask), weights)


def rubric_rewards(
    weights: Shaped[Tensor, "responses criteria tokens"],
    verdicts: Bool[Tensor, "responses criteria"],
    criterion_weights: Shaped[Tensor, "responses criteria"],
) -> Float[Tensor, "responses tokens"]:
    """Reward of each token under several criteria: `sum_k w_k [z_k] alpha_kt / sum_k max(w_k, 0)`.

    One criterion of weight 1 is the `alpha_t V` of `attributed_rewards`.

    Args:
        weights: alpha_k, `attribution_weights` under each criterion.
        verdicts: z_k, whether the criterion holds.
        criterion_weights: w_k. Negative for a fault that costs reward; 0 for a criterion that does not apply.

    Returns:
        In `weights`' dtype, torch's default for integers and bool; computed in float64. A row sums to at most 1.

    Raises:
        ValueError: Shapes differ, a value is not finite, or a response's positive criterion weights sum to 0.

    References:
        Grad2Reward, arXiv 2602.01791.

    Example:
        >>> alpha = torch.tensor([[[0.5, 0.5], [0.0, 1.0]]])
        >>> rubric_rewards(alpha, torch.tensor([[True, True]]), torch.tensor([[2.0, -1.0]]))
        tensor([[0.5000, 0.0000]])
    """
    check_shapes(weights.shape[:2], verdicts=verdicts, criterion_weights=criterion_weights)
    check_finite("weights", weights.sum((-2, -1)))
    check_finite("criterion_weights", criterion_weights.sum(-1))
    worth = criterion_weights.double()
    most = worth.clamp(min=0).sum(-1)
    if bool((most <= 0).any()):
        bad = int((most <= 0).nonzero()[0])
        raise ValueError(
            "each response needs criterion_weights with a positive sum of their positive part, got "
            f"{criterion_weights[bad].tolist()} at response {bad}"
        )
    counted = worth.where(verdicts, 0.0) / most[:, None]
    return as_given(torch.einsum("rk,rkt->rt", counted, weights.double()), weights)


def returns_to_go(
    token_rewards: Shaped[Tensor, "responses tokens"], mask: Bool[Tensor, "responses tokens"]
) -> Float[Tensor, "responses tokens"]:
    """Return of each token: `R_t = sum_{s >= t} r_s` over the response's counted tokens, undiscounted.

    Args:
        token_rewards: Entries outside `mask` may be anything, NaN included.
        mask: True for the tokens of the response.

    Returns:
        In `token_rewards`' dtype, torch's default for integers and bool; computed in float64; 0 outside `mask`.

    Raises:
        ValueError: Shapes differ or a counted reward is not finite.

    Example:
        >>> returns_to_go(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[True, True, False]]))
        tensor([[3., 2., 0.]])
    """
    check_shapes(token_rewards.shape, mask=mask)
    check_finite("token_rewards", token_rewards, mask)
    counted = token_rewards.double().where(mask, 0.0)
    return as_given(counted.flip(-1).cumsum(-1).flip(-1).where(mask, 0.0), token_rewards)


def last_token_rewards(
    rewards: Shaped[Tensor, " responses"], mask: Bool[Tensor, "responses tokens"]
) -> Float[Tensor, "responses tokens"]:
    """Each response's reward on its last counted token, 0 elsewhere; a zero row without counted tokens.

    Raises:
        ValueError: Shapes differ or a reward is not finite.

    Example:
        >>> last_token_rewards(torch.tensor([5.0]), torch.tensor([[True, True, False]]))
        tensor([[0., 5., 0.]])
    """
    check_shapes(mask.shape[:1], rewards=rewards)
    check_finite("rewards", rewards)
    still_to_come = mask.flip(-1).cumsum(-1).flip(-1)
    return as_given(rewards[:, None].where(mask & (still_to_come == 1), 0), rewards)
