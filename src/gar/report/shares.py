"""What each token of a shown response adds to its alignment, under the weights that a run has left."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gar.config import RunConfig
from gar.errors import GarError
from gar.report.content import ShownShares
from gar.report.experts import Experts
from gar.report.read import ReadRun
from gar.report.sample import DrawnGroup
from gar.report.texts import recorded_prompt
from gar.settings import ModelSettings

Weights = Literal["final", "start"]
Shares = Mapping[tuple[int, int, int, int], ShownShares]
"""By run, step, group and response."""

_DIGITS = 4


def token_shares(
    runs: Sequence[ReadRun], groups: Sequence[DrawnGroup], experts: Experts, weights: Weights, notes: list[str]
) -> Shares:
    """Shares for every shown response that has an expert solution; this runs the model.

    Args:
        runs: The runs.
        groups: What is shown of them.
        experts: Their problems.
        weights: Of each run: "final", its `model` folder; "start", what it was trained from.
        notes: Receives which weights were used, and why there are no shares where there are none.
    """
    shares: dict[tuple[int, int, int, int], ShownShares] = {}
    for number, run in enumerate(runs):
        own = [group for group in groups if group.run == number and (number, _id(group)) in experts]
        if not own:
            continue
        if run.config is None:
            notes.append(f"{run.name}: no token shares, since its settings are unknown.")
            continue
        path = str(run.folder.path / "model") if weights == "final" else run.config.model.path
        if weights == "final" and not Path(path).is_dir():
            notes.append(
                f"{run.name}: no token shares, since there is no final model in it (not finished, or removed)."
            )
            continue
        try:
            scorer = _scorer(run.config, path)
            for group in own:
                shares |= _group_shares(scorer, group, experts[number, _id(group)])
        except GarError as error:
            notes.append(f"{run.name}: token shares end here, since the model cannot be used: {error}")
            continue
        name = f"the final weights (after step {run.last_step})" if weights == "final" else f"the weights of {path}"
        notes.append(
            f"{run.name}: token shares are under {name}. The alignment beside a response was recorded in training, "
            "under the weights of its own step, and may differ from the sum of the shares."
        )
    return shares


def _id(group: DrawnGroup) -> str:
    return str(group.first["problem_id"])


def _scorer(config: RunConfig, path: str) -> Any:
    from gar.models.load import load_policy
    from gar.scoring import GarScorer
    from gar.verify import Verifier

    settings = ModelSettings(path=path, dtype=config.model.dtype, attention=config.model.attention)
    model, tokenizer = load_policy(settings)
    # It only says which tags the response has; the verdicts are the recorded ones.
    verifier = Verifier(format=config.verify.format, tags=config.verify.tags.as_tags())
    return GarScorer(model.eval(), tokenizer, verifier=verifier, signal=config.signal, score_all=True)


def _group_shares(scorer: Any, group: DrawnGroup, problem: Any) -> dict[tuple[int, int, int, int], ShownShares]:
    from gar.scoring import ResponseGroup

    scores = scorer.score(
        [
            ResponseGroup(
                prompt=recorded_prompt(group.first["prompt"]),
                responses=[row["response"] for row in group.rows],
                anchors=[anchor.text for anchor in problem.anchors],
                eligible=[bool(row["eligible"]) for row in group.rows],
            )
        ],
        tokens=True,
    )
    return {
        (group.run, group.step, row["group_index"], row["response_index"]): ShownShares(
            tokens=list(score.tokens),
            shares=[None if share is None else round(share, _DIGITS) for share in score.token_shares],
            alignment=round(score.alignment, _DIGITS),
        )
        for row, score in zip(group.rows, scores, strict=True)
        if score.token_shares is not None
    }
