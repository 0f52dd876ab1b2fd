"""The count of `gar.models.cost` for a run: its model's shape, and the lengths and rates of its rollouts."""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gar.config import RunConfig
from gar.data.run_problems import find_run_problems
from gar.errors import RecordError
from gar.methods import METHODS
from gar.models.cost import GroupShape, SignalRoute, model_shape, signal_share
from gar.models.load import load_tokenizer
from gar.records.contents import RunContents, read_rollouts
from gar.scoring.anchors import LIKENESSES

_COLUMNS = ("step", "group_index", "problem_id", "num_tokens", "prompt_tokens", "num_scored_tokens", "signal_norm")
_MOST_ANCHORS = 500
"""Expert solutions to tokenise; the others are assumed to have their mean length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedCost:
    """The count for one run.

    Attributes:
        group: The mean group of the run.
        states: Source of its hidden states, in words.
        share: The signal's operations per operation of the step without generation.
    """

    group: GroupShape
    states: str
    share: float

    def __str__(self) -> str:
        group = self.group
        text = (
            f"groups of {group.responses} responses of {group.response_tokens:,.0f} tokens after a prompt of "
            f"{group.prompt_tokens:,.0f}"
        )
        if not group.pass_rate:
            return f"{text}, none with a vector"
        return (
            f"{text}, {group.pass_rate:.0%} with a vector over {group.span_tokens:,.0f} tokens; {group.anchors:.2f} "
            f"anchors of {group.anchor_tokens:,.0f} tokens a group; states of {self.states}"
        )


def counted_cost(model: str, config: RunConfig, group: GroupShape) -> CountedCost:
    """The count for a run with these settings and this mean group.

    Args:
        model: A folder, a Hub id or "embedded", for its shape.
        config: Settings of the run.
        group: From `mean_group`.

    Raises:
        ModelError: The model's configuration cannot be loaded, or is not that of a dense model.
    """
    route, states = _route(config, group)
    return CountedCost(group=group, states=states, share=signal_share(model_shape(model), group, route))


def model_of(run: RunContents, config: RunConfig) -> str:
    """Path of a run's model: the final one if it was saved, else the one that the run started from."""
    final = run.folder.path / "model"
    return str(final) if (final / "config.json").is_file() else config.model.path


def mean_group(run: RunContents) -> GroupShape:
    """The mean group of a run, from its rollouts, its settings and its problems.

    Raises:
        RecordError: The settings or the rollouts cannot be read, or the method runs a judge.
        DataError: The expert solutions cannot be read.
        ModelError: The tokenizer cannot be loaded.
    """
    config = run.config
    if config is None:
        raise RecordError(f"{run.name}: its settings cannot be read.")
    if METHODS[config.method].token_level:
        raise RecordError(f"{config.method}: the passes of a judge are not counted.")
    rollouts = read_rollouts(run, _COLUMNS)
    if rollouts.notes:  # the mean over the remaining rows would be wrong
        raise RecordError(" ".join(rollouts.notes))
    rows = rollouts.table
    with_vector = rows.filter(rows["signal_norm"].is_valid())
    num_groups = rows.select(["step", "group_index"]).group_by(["step", "group_index"]).aggregate([]).num_rows
    num_anchors, anchor_tokens = _anchors(run, config, with_vector)
    trl = {**METHODS[config.method].trl, **config.trl}
    return GroupShape(
        responses=trl.get("num_generations", 8),
        response_tokens=_mean(rows["num_tokens"]),
        prompt_tokens=_mean(rows["prompt_tokens"]),
        span_tokens=max(1.0, _mean((with_vector if len(with_vector) else rows)["num_scored_tokens"])),
        pass_rate=len(with_vector) / len(rows),
        anchors=num_anchors / num_groups,
        anchor_tokens=anchor_tokens,
        updates=trl.get("num_iterations", 1),
        log_prob_pass=_has_log_prob_pass(trl),
        checkpointing=trl.get("gradient_checkpointing", True),
    )


def _anchors(run: RunContents, config: RunConfig, with_vector: pa.Table) -> tuple[float, float]:
    """Number of forward passes of anchors, one per anchor of each group with a vector, and mean tokens of an anchor."""
    if METHODS[config.method].alignment in (None, "random-anchor", *LIKENESSES) or not len(with_vector):
        return 0, 0
    groups = with_vector.group_by(["step", "group_index"]).aggregate([("problem_id", "min")])
    ids = list(dict.fromkeys(groups["problem_id_min"].to_pylist()))[:_MOST_ANCHORS]
    lengths = _anchor_tokens(model_of(run, config), config, ids)
    if not lengths:
        raise RecordError(f"{run.name}: none of its problems is in {config.data.source}, where its anchors should be.")
    tokens = [number for numbers in lengths.values() for number in numbers]
    return len(groups) * len(tokens) / len(lengths), statistics.fmean(tokens) if tokens else 0


def _anchor_tokens(model: str, config: RunConfig, ids: Collection[str]) -> Mapping[str, list[int]]:
    tokenizer = load_tokenizer(model, config.model.revision)
    problems = find_run_problems(config.data, ids)
    return {
        name: [len(tokenizer.encode(anchor.text, add_special_tokens=False)) for anchor in problem.anchors]
        for name, problem in problems.items()
    }


def _has_log_prob_pass(trl: Mapping[str, Any]) -> bool:
    """TRL's condition for a log-prob pass: vLLM, or an update on rollouts of an older policy."""
    accumulation = trl.get("gradient_accumulation_steps", 1)
    batch, rows = trl.get("per_device_train_batch_size", 8), trl.get("generation_batch_size")
    per_generation = trl.get("steps_per_generation") or (rows // batch if rows else accumulation)
    with_vllm = trl.get("use_vllm", False) and trl.get("vllm_importance_sampling_correction", True)
    return with_vllm or accumulation % (per_generation * trl.get("num_iterations", 1)) != 0


def _route(config: RunConfig, group: GroupShape) -> tuple[SignalRoute, str]:
    """The route by which `GARTrainer` gets hidden states, and their source in words."""
    if group.log_prob_pass:
        return "captured", "the log-prob pass"
    if config.trl.get("use_vllm", False) or config.trl.get("use_transformers_continuous_batching", False):
        return "forward", "a pass of their own"
    return "captured", "sampling"


def _mean(column: pa.ChunkedArray) -> float:
    return float(np.mean(column.to_numpy()))
