"""The share of each token of a shown response in its alignment, under a run's weights. Needs a model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from gar.config import RunConfig
from gar.errors import GarError
from gar.records import Run
from gar.report.page import ShownGroup, ShownShares
from gar.report.sample import DrawnGroup, Experts, recorded_prompt
from gar.settings import ModelSettings
from gar.types import Problem

_DIGITS = 4


def add_shares(
    shown: dict[int, ShownGroup],
    runs: Sequence[Run],
    drawn: Sequence[DrawnGroup],
    experts: Experts,
    weights: Literal["final", "start"],
    notes: list[str],
) -> None:
    """Add token shares to every shown response that has an expert solution. This runs the model of each run.

    `shown` has the groups by their position in `drawn`, and is changed. `weights` are those in the run's `model` folder
    ("final"), or those that it was trained from ("start"). Which were used, and what is missing, goes to `notes`.
    """
    for number, run in enumerate(runs):
        places = [place for place in shown if drawn[place].run == number and drawn[place].problem in experts]
        if not places:
            continue
        if run.config is None:
            notes.append(f"{run.name}: no token shares, since its settings are unknown.")
            continue
        path = str(run.path / "model") if weights == "final" else run.config.model.path
        if weights == "final" and not Path(path).is_dir():
            notes.append(f"{run.name}: no token shares, since it has no final model (not finished, or removed).")
            continue
        try:
            scorer = _scorer(run.config, path)
            for place in places:
                group = drawn[place]
                shown[place] = _with_shares(shown[place], _group_scores(scorer, group, experts[group.problem]))
        except GarError as error:
            notes.append(f"{run.name}: no further token shares, since the model cannot be used: {error}")
            continue
        name = f"the final weights (after step {run.last_step})" if weights == "final" else f"the weights of {path}"
        notes.append(
            f"{run.name}: token shares are under {name}. The alignment beside a response was recorded in training, "
            "under the weights of its own step, and may differ from the sum of the shares."
        )


def _scorer(config: RunConfig, path: str) -> Any:
    from gar.models.load import load_policy
    from gar.scoring import GARScorer
    from gar.verify import Verifier

    settings = ModelSettings(path=path, dtype=config.model.dtype, attention=config.model.attention)
    model, tokenizer = load_policy(settings)
    # Only for the tags of the responses. The verdicts are the recorded ones.
    verifier = Verifier(format=config.verify.format, tags=config.verify.tags.as_tags())
    signal = config.signal.model_copy(update={"policy": "current"})  # of the model at hand, without a copy of it
    return GARScorer(model.eval(), tokenizer, verifier=verifier, signal=signal, score_all=True)


def _group_scores(scorer: Any, group: DrawnGroup, problem: Problem) -> Sequence[Any]:
    from gar.scoring import ResponseGroup

    responses = ResponseGroup(
        prompt=recorded_prompt(group.first["prompt"]),
        responses=[row["response"] for row in group.rows],
        anchors=[anchor.text for anchor in problem.anchors],
        eligible=[bool(row["eligible"]) for row in group.rows],
    )
    return scorer.score([responses], tokens=True)


def _with_shares(group: ShownGroup, scores: Sequence[Any]) -> ShownGroup:
    def shares(score: Any) -> ShownShares | None:
        if score.token_shares is None:
            return None
        return ShownShares(
            tokens=list(score.tokens),
            shares=[None if share is None else round(share, _DIGITS) for share in score.token_shares],
            alignment=round(score.alignment, _DIGITS),
        )

    responses = zip(group.responses, scores, strict=True)
    return replace(group, responses=[replace(response, shares=shares(score)) for response, score in responses])
