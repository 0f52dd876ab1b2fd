"""The exact share of each token of a response in its alignment."""

from collections.abc import Sequence

import pyarrow as pa

from gar.analysis.outputs import Cell, Output
from gar.analysis.policies import Policy, choose_groups
from gar.analysis.tokens_page import TokenPage, render_tokens, token_shares
from gar.data.problems import prompt_text
from gar.errors import DataError
from gar.scoring import GarScorer, ResponseGroup, ResponseScore
from gar.types import Problem

_NUM_FRESH = 8


def token_shares_of(
    policy: Policy,
    *,
    problem_id: str | None = None,
    response_index: int | None = None,
    step: int | None = None,
    num_samples: int = 0,
    max_responses: int = 8,
    seed: int = 0,
) -> TokenPage:
    """Exact shares of tokens in the alignment of responses, under the policy as it is.

    Args:
        policy: Policy of a run, or a model.
        problem_id: Only this problem; None: the one with most distinct correct responses.
        response_index: Only this response of its group.
        step: Step of the recorded rollouts; None: the last.
        num_samples: Fresh responses to draw; 0: the recorded ones. A model has none and draws 8.
        max_responses: Largest number of responses to show, correct ones first, then by alignment.
        seed: Seed of the sampling.

    Raises:
        DataError: Nothing can be scored: no such problem or response, no expert solution, no token.
        RecordError: No rollouts of that step.
    """
    if policy.run is None:
        num_samples = num_samples or _NUM_FRESH
    origin, groups = choose_groups(
        policy, problem_id=problem_id, num_samples=num_samples, step=step, seed=seed, max_problems=_NUM_FRESH
    )
    if not num_samples:
        origin += ", under the model as it is now"
    anchored = {problem.id: problem for problem in policy.with_anchors()}
    for group in sorted(groups, key=_interest):
        scores = [score for score in _scores(policy, group) if response_index in (None, score.response_index)]
        if any(score.token_shares is not None for score in scores):
            return _page(policy, origin, anchored[group.id], scores, max_responses)
    which = f"problem '{problem_id}'" if problem_id else f"any of {len(groups)} problems"
    if response_index is not None:
        which = f"response {response_index} of {which}"
    raise DataError(
        f"{policy.name}: no alignment for {which} ({origin}): no such problem or response, no expert solution, or no "
        "token to score."
    )


def _interest(group: ResponseGroup) -> int:
    """Sort key: groups with most distinct correct responses come first."""
    return -len({str(r) for r, right in zip(group.responses, group.eligible or (), strict=False) if right})


def _scores(policy: Policy, group: ResponseGroup) -> list[ResponseScore]:
    if not group.anchors:
        return []
    scorer = GarScorer(
        policy.model, policy.tokenizer, signal=policy.signal, reward=policy.config.reward, score_all=True
    )
    return scorer.score([group], tokens=True)


def _page(
    policy: Policy, origin: str, problem: Problem, scores: Sequence[ResponseScore], max_responses: int
) -> TokenPage:
    notes = [*policy.notes]
    scored = [score for score in scores if score.token_shares is not None]
    if len(scores) > len(scored):
        reasons = ", ".join(sorted({score.signal for score in scores if score.token_shares is None}))
        notes.append(f"{len(scores) - len(scored)} of {len(scores)} responses are not scored: {reasons}.")
    if not any(score.eligible for score in scored):
        notes.append("No response shown is correct: their alignment earns no bonus.")
    if len(scored) > max_responses:
        notes.append(f"{max_responses} of {len(scored)} scored responses are shown, correct ones first.")
    scored.sort(key=lambda score: (not score.eligible, -(score.alignment or 0.0)))
    return TokenPage(
        policy=policy.name,
        origin=origin,
        problem_id=problem.id,
        prompt=prompt_text(problem.prompt),
        expert=problem.anchors[0].text,
        responses=scored[:max_responses],
        notes=notes,
    )


def tokens_output(page: TokenPage) -> Output:
    """The table, data and page of the command."""
    rows: list[Sequence[Cell]] = []
    for response in page.responses:
        scored = [(share, token) for token, share in token_shares(response) if share is not None]
        correct = "yes" if response.eligible else "no"
        ends = [f"{token.strip()!r} {share:+.3f}" for share, token in (max(scored), min(scored))]
        rows.append((response.response_index, correct, len(scored), response.alignment, *ends))
    tokens = [(r, i, *pair) for r in page.responses for i, pair in enumerate(token_shares(r))]
    table = pa.table(
        {
            "problem_id": [page.problem_id for _ in tokens],
            "response_index": [response.response_index for response, *_ in tokens],
            "position": [position for _, position, *_ in tokens],
            "token": [token for _, _, token, _ in tokens],
            "share": pa.array([share for *_, share in tokens], pa.float64()),
        }
    )
    return Output(
        name="tokens",
        title=f"Token shares, {page.policy}, problem {page.problem_id}: n = {len(rows)} responses",
        headings=("response", "correct", "scored tokens", "alignment", "most towards", "most away"),
        rows=rows,
        data=table,
        html=render_tokens(page),
        notes=page.notes,
    )
