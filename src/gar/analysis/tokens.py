"""Which tokens make the alignment: an HTML page that shades each token of a response beside the expert solution."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from gar.analysis.outputs import Output
from gar.analysis.policies import Policy, recorded_groups, sampled_groups
from gar.errors import DataError
from gar.scoring import GarScorer, ResponseGroup, ResponseScore
from gar.types import Problem

_NUM_FRESH = 8
_MAX_SHOWN_TOKENS = 4000
"""A page with more spans than this is slow to open: the middle of a longer response is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenShares:
    """A response token by token.

    Attributes:
        problem_id: Of its problem.
        response_index: Its place in the group.
        prompt: The problem, as text.
        eligible: Right and in format.
        alignment: Sum of the shares.
        tokens: Text of each token.
        shares: What each adds to the alignment; None outside the scored span.
        expert: The expert solution.
    """

    problem_id: str
    response_index: int
    prompt: str
    eligible: bool
    alignment: float
    tokens: Sequence[str]
    shares: Sequence[float | None]
    expert: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPage:
    """Some responses token by token, and what cannot be shown."""

    policy: str
    origin: str
    responses: Sequence[TokenShares]
    notes: Sequence[str]


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
        policy: A run's or a model.
        problem_id: Only this problem; None the one with most different correct responses.
        response_index: Only this response of its group.
        step: Of the recorded rollouts; None the last.
        num_samples: Draw so many fresh responses instead. A model has no recorded ones and draws 8.
        max_responses: Show at most so many, correct ones first, then by alignment.
        seed: Of the sampling.

    Raises:
        DataError: Nothing can be scored: no such problem or response, no expert solution, no token.
        RecordError: No rollouts of that step.
    """
    anchored = {problem.id: problem for problem in policy.with_anchors()}
    if num_samples or policy.run is None:
        chosen = [problem for id, problem in anchored.items() if problem_id in (None, id)][:_NUM_FRESH]
        groups = sampled_groups(policy, chosen, num_samples=num_samples or _NUM_FRESH, seed=seed) if chosen else []
        origin = f"{num_samples or _NUM_FRESH} fresh responses"
    else:
        step, groups = recorded_groups(policy, step)
        groups = [group for group in groups if problem_id in (None, group.id)]
        origin = f"rollouts of step {step}, under the model as it is now"
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
    """Groups with most different correct responses come first."""
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
        responses=[_response(score, problem) for score in scored[:max_responses]],
        notes=notes,
    )


def _response(score: ResponseScore, problem: Problem) -> TokenShares:
    prompt = problem.prompt
    return TokenShares(
        problem_id=score.id,
        response_index=score.response_index,
        prompt=prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt),
        eligible=score.eligible,
        alignment=score.alignment or 0.0,
        tokens=score.tokens or (),
        shares=score.token_shares or (),
        expert=problem.anchors[0].text,
    )


# --------------------------------------------------------------------------------------------------------------- page

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --muted: #666; --line: #d8d8d8; --back: #fff; --more: 0 114 178;
  --less: 213 94 0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --muted: #a0a0a0; --line: #444; --back: #16181c;
  --more: 86 180 233; --less: 230 130 40; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 76rem;
  margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.25rem; } h2 { font-size: 1rem; margin: 0 0 .4rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.2rem; border-top: 1px solid var(--line);
  padding: 1rem 0; }
@media (max-width: 48rem) { .pair { grid-template-columns: 1fr; } }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.9 ui-monospace, monospace;
  unicode-bidi: plaintext; }
.text span { border-radius: 3px; padding: .1em 0; }
.more { background: rgb(var(--more) / var(--a)); border-bottom: 2px solid rgb(var(--more) / .9); }
.less { background: rgb(var(--less) / var(--a)); border-bottom: 2px dotted rgb(var(--less) / .9); }
.out { color: var(--muted); } .meta { color: var(--muted); font-size: .9rem; margin: .2rem 0; }
"""


def render_tokens(page: TokenPage) -> str:
    """The page: one self-contained HTML text. All text of the model and of the data is escaped."""
    shown = "".join(_pair(response) for response in page.responses)
    first = page.responses[0]
    notes = "".join(f"<p class=meta>{html.escape(note)}</p>" for note in page.notes)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Tokens: {html.escape(first.problem_id)}</title><style>{_STYLE}</style>"
        f"<h1>Share of each token in the alignment: {html.escape(page.policy)}, problem "
        f"{html.escape(first.problem_id)}</h1>"
        f"<p class=text>{html.escape(first.prompt)}</p>"
        f"<p class=meta>{len(page.responses)} responses ({html.escape(page.origin)}). The alignment is a sum over the "
        "scored tokens, and a token's shade its exact share: <span class=more style='--a:.35'>towards the "
        "expert</span> (solid line), <span class=less style='--a:.35'>away from it</span> (dotted line). Grey tokens "
        "are outside the scored span. Point at a token to read its share.</p>"
        f"{notes}{shown}</html>\n"
    )


def _pair(response: TokenShares) -> str:
    verdict = "correct" if response.eligible else "not correct, or in bad format"
    return (
        f"<div class=pair><div><h2>Response {response.response_index}: {verdict}, alignment "
        f"{response.alignment:.3f}</h2><div class=text dir=auto>{_shaded(response.tokens, response.shares)}</div></div>"
        f"<div><h2>Expert solution</h2><div class=text dir=auto>{html.escape(response.expert)}</div></div></div>"
    )


def _shaded(tokens: Sequence[str], shares: Sequence[float | None]) -> str:
    largest = max((abs(share) for share in shares if share is not None), default=0.0) or 1.0
    parts = [_token(token, share, largest) for token, share in zip(tokens, shares, strict=True)]
    if len(parts) > _MAX_SHOWN_TOKENS:
        half = _MAX_SHOWN_TOKENS // 2
        gap = f"<span class=out> [{len(parts) - 2 * half:,} tokens are not shown; the data has them] </span>"
        parts = [*parts[:half], gap, *parts[-half:]]
    return "".join(parts)


def _token(token: str, share: float | None, largest: float) -> str:
    text = html.escape(token)
    if share is None:
        return f"<span class=out title='outside the scored span'>{text}</span>"
    kind = "more" if share >= 0 else "less"
    return f"<span class={kind} style='--a:{0.75 * abs(share) / largest:.2f}' title='{share:+.4f}'>{text}</span>"


def tokens_output(page: TokenPage) -> Output:
    """What the command writes and shows."""
    rows = []
    for response in page.responses:
        pairs = zip(response.shares, response.tokens, strict=True)
        scored = [(share, token) for share, token in pairs if share is not None]
        rows.append(
            (
                response.response_index, "yes" if response.eligible else "no", len(scored), response.alignment,
                _named(max(scored)), _named(min(scored)),
            )
        )  # fmt: skip
    table = pa.table(
        {
            "problem_id": [r.problem_id for r in page.responses for _ in r.tokens],
            "response_index": [r.response_index for r in page.responses for _ in r.tokens],
            "position": [i for r in page.responses for i in range(len(r.tokens))],
            "token": [token for r in page.responses for token in r.tokens],
            "share": pa.array([share for r in page.responses for share in r.shares], pa.float64()),
        }
    )
    return Output(
        name="tokens",
        title=f"Token shares, {page.policy}, problem {page.responses[0].problem_id}: n = {len(rows)} responses",
        headings=("response", "correct", "scored tokens", "alignment", "most towards", "most away"),
        rows=rows,
        data=table,
        html=render_tokens(page),
        notes=page.notes,
    )


def _named(scored: tuple[float, str]) -> str:
    return f"{scored[1].strip()!r} {scored[0]:+.3f}"
