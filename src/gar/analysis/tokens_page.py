"""The page of `gar analyze tokens`: each token of a response shaded by its share, beside the expert solution.

The file loads nothing: no script, no picture, no font. It follows the light or dark mode of the reader's system.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from gar.scoring import ResponseScore

_MAX_SHOWN_TOKENS = 4000
"""A page with more spans than this is slow to open: the middle of a longer response is left out."""
_NUM_NAMED, _LEAST_NAMED, _NAMED_CHARACTERS = 5, 0.0005, 24


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPage:
    """Responses to one problem, token by token.

    Attributes:
        policy: Name of the model or run.
        origin: Where the responses come from, in words.
        problem_id: The problem.
        prompt: Its text.
        expert: The expert solution.
        responses: Responses with tokens and their shares in the alignment.
        notes: What the page cannot show.
    """

    policy: str
    origin: str
    problem_id: str
    prompt: str
    expert: str
    responses: Sequence[ResponseScore]
    notes: Sequence[str]


def token_shares(response: ResponseScore) -> list[tuple[str, float | None]]:
    """Text and share of each token; the share is None outside the scored span."""
    return list(zip(response.tokens or (), response.token_shares or (), strict=True))


_STYLE = """
:root { color-scheme: light dark; --ink: #22262b; --soft: #5b636d; --line: #e3e0d8; --back: #fbfaf7; --card: #fff;
  --more: 0 114 178; --less: 213 94 0; --more-line: #0072b2; --less-line: #b34f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e0; --soft: #9aa3ac; --line: #2f353b; --back: #15181b;
  --card: #1c2024; --more: 0 104 164; --less: 158 72 0; --more-line: #56b4e9; --less-line: #f0a050; } }
body { font: 15px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 76rem;
  margin: 1.5rem auto 3rem; padding: 0 1rem; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.25rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.2rem; border-top: 1px solid var(--line);
  padding: 1.1rem 0; margin-top: 1.1rem; }
.pair > div { min-width: 0; }
@media (max-width: 48rem) { .pair { grid-template-columns: 1fr; } }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/2 ui-monospace, monospace; margin: 0;
  unicode-bidi: plaintext; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .5rem .8rem; }
.more, .less { padding: .15em 0; border-radius: 3px 3px 0 0; }
.more { background: rgb(var(--more) / var(--a)); border-bottom: 2px solid var(--more-line); }
.less { background: rgb(var(--less) / var(--a)); border-bottom: 2px dotted var(--less-line); }
.out, .meta { color: var(--soft); } .meta { font-size: .875rem; margin: .6rem 0; overflow-wrap: anywhere; }
.named span { white-space: nowrap; }
.key { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .8rem; }
.scale { width: 9rem; height: .8rem; border-radius: 3px; border: 1px solid var(--line);
  background: linear-gradient(90deg, rgb(var(--less) / .75), rgb(var(--less) / 0) 50%,
  rgb(var(--more) / 0) 50%, rgb(var(--more) / .75)); }
.key .more, .key .less { color: var(--ink); padding: 0 .3em; }
"""


def render_tokens(page: TokenPage) -> str:
    """The page as one self-contained HTML text. All text of the model and of the data is escaped."""
    policy, problem, origin = (html.escape(text) for text in (page.policy, page.problem_id, page.origin))
    notes = "".join(f"<p class=meta>{html.escape(note)}</p>" for note in page.notes)
    shown = "".join(_pair(responses, page.expert) for responses in _alike(page.responses))
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
        "content='width=device-width,initial-scale=1'><meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Tokens: {policy}, problem {problem}</title><style>{_STYLE}</style>"
        f"<h1>Share of each token in the alignment: <bdi>{policy}</bdi>, problem <bdi>{problem}</bdi></h1>"
        f"<p class=text dir=auto>{html.escape(page.prompt)}</p>"
        f"<p class=meta>{len(page.responses)} responses (<bdi>{origin}</bdi>). The alignment is the sum of the shares "
        "of the scored tokens. Shades are relative to the largest share of a response. Grey tokens lie outside "
        "the scored span. Hover over a token to read its share; the largest are listed below each response.</p>"
        "<p class='meta key'><span class=less style='--a:.4'>away from the expert</span><span class=scale></span>"
        "<span class=more style='--a:.4'>towards the expert</span></p>"
        f"{notes}{shown}</html>\n"
    )


def _alike(responses: Sequence[ResponseScore]) -> list[list[ResponseScore]]:
    """Responses with equal tokens and equal shares to four digits stand together, at the place of the first one."""
    groups: dict[object, list[ResponseScore]] = {}
    for response in responses:
        shares = tuple((token, share and round(share, 4)) for token, share in token_shares(response))
        groups.setdefault((shares, response.eligible), []).append(response)
    return list(groups.values())


def _pair(responses: Sequence[ResponseScore], expert: str) -> str:
    first = responses[0]
    verdict = "correct" if first.eligible else "not correct, or in bad format"
    numbers = ", ".join(str(response.response_index) for response in responses)
    which = f"Responses {numbers}, all the same" if len(responses) > 1 else f"Response {numbers}"
    shares = token_shares(first)
    return (
        f"<div class=pair><div><h2>{which}: {verdict}, alignment {first.alignment or 0:.3f}</h2>"
        f"<div class=text dir=auto>{_shaded(shares)}</div>{_largest(shares)}</div>"
        f"<div><h2>Expert solution</h2><div class=text dir=auto>{html.escape(expert)}</div></div></div>"
    )


def _largest(shares: Sequence[tuple[str, float | None]]) -> str:
    """The largest shares in words, for readers without a pointer."""
    scored = [(share, token) for token, share in shares if share is not None and abs(share) >= _LEAST_NAMED]
    scored.sort(key=lambda pair: -abs(pair[0]))
    named = ", ".join(
        f"<span><bdi>{html.escape(repr(token[:_NAMED_CHARACTERS]))}</bdi> {share:+.3f}</span>"
        for share, token in scored[:_NUM_NAMED]
    )
    return f"<p class='meta named'>Largest shares: {named}</p>" if named else ""


def _shaded(shares: Sequence[tuple[str, float | None]]) -> str:
    largest = max((abs(share) for _, share in shares if share is not None), default=0.0) or 1.0
    parts = [_token(token, share, largest) for token, share in shares]
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
