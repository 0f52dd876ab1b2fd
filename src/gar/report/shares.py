"""The share of each token of a shown response in its alignment, under a run's weights. Needs a model."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gar.config import RunConfig
from gar.errors import GarError
from gar.records import Run
from gar.records.rollouts import read_prompt
from gar.report.page import ShownShares
from gar.settings import ModelSettings
from gar.types import Problem, Prompt

_DIGITS = 4

Rows = Sequence[Mapping[str, Any]]
"""The recorded rows of one group, in the order of the responses."""
ProblemKey = tuple[str | None, str]
"""Evaluation set (None: the training problems) and problem id."""


def key_of(rows: Rows) -> ProblemKey:
    """The problem of a group."""
    return rows[0].get("set_name"), rows[0]["problem_id"]


def token_shares(
    run: Run, groups: Sequence[Rows], problems: Mapping[ProblemKey, Problem], notes: list[str]
) -> list[list[ShownShares | None] | None]:
    """The token shares of every group that has an expert solution, under the final model of the run.

    What is missing goes to `notes`.
    """
    shares: list[list[ShownShares | None] | None] = [None] * len(groups)
    config, places = run.config, [place for place, rows in enumerate(groups) if key_of(rows) in problems]
    if config is None or not places:
        return shares
    if reason := _other_comparison(config):
        notes.append(f"{run.name}: no token shares, since {reason}.")
        return shares
    if not (run.path / "model").is_dir():
        notes.append(f"{run.name}: no token shares, since it has no final model (not finished, or removed).")
        return shares
    # A model that cannot be used costs the page its shares, and nothing else.
    try:
        scorer, encode = _scorer(config, str(run.path / "model"))
        for place in places:
            shares[place] = _group_shares(scorer, encode, groups[place], problems[key_of(groups[place])])
    except GarError as error:
        notes.append(f"{run.name}: no further token shares, since the model cannot be used: {error}")
        return shares
    notes.append(
        f"{run.name}: token shares are under the final weights (after step {run.last_step}). The alignment of a "
        "response was recorded in training, under the weights of its step. It may differ from the sum of the shares."
    )
    return shares


def _other_comparison(config: RunConfig) -> str:
    """A clause about a method whose alignments are not with vectors of the problem's own expert solutions, else ""."""
    from gar.methods import METHODS

    method = METHODS[config.method]
    return (
        "" if method.alignment in (None, "anchor") else f"{method.name} compares with something else ({method.summary})"
    )


def _scorer(config: RunConfig, path: str) -> tuple[Any, Callable[[Prompt], list[int]]]:
    """A scorer with the run's model and signal, and what encodes a prompt as in training."""
    from gar.methods import METHODS, resolve_signal
    from gar.models.load import load_policy
    from gar.reader import encode_prompt
    from gar.scoring import GARScorer
    from gar.verify import Verifier

    settings = ModelSettings(path=path, dtype=config.model.dtype, attention=config.model.attention)
    model, tokenizer = load_policy(settings)
    # Only for the tags of the responses. The verdicts are the recorded ones.
    verifier = Verifier(format=config.verify.format, tags=config.verify.tags)
    # The method may have a signal of its own. Its vectors are of the model at hand, without a copy of it.
    signal = resolve_signal(METHODS[config.method], config.signal).model_copy(update={"policy": "current"})
    scorer = GARScorer(model.eval(), tokenizer, verifier=verifier, signal=signal, score_all=True)
    template = config.trl.get("chat_template_kwargs")
    template = json.loads(template) if isinstance(template, str) else template
    return scorer, partial(encode_prompt, tokenizer, chat_template_kwargs=template)


def _group_shares(
    scorer: Any, encode: Callable[[Prompt], list[int]], rows: Rows, problem: Problem
) -> list[ShownShares | None]:
    from gar.scoring import ResponseGroup

    group = ResponseGroup(
        prompt=encode(read_prompt(rows[0]["prompt"])),
        responses=[row["response"] for row in rows],
        anchors=[anchor.text for anchor in problem.anchors],
        eligible=[bool(row["eligible"]) for row in rows],
    )
    return [
        ShownShares(
            tokens=list(score.tokens),
            shares=[None if share is None else round(share, _DIGITS) for share in score.token_shares],
            alignment=round(score.alignment, _DIGITS),
        )
        if score.token_shares is not None
        else None
        for score in scorer.score([group], tokens=True)
    ]
