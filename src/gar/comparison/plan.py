"""Plan the runs of a comparison: one configuration and one result path for each row and seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.comparison.settings import ComparisonSettings, RowSettings
from gar.config import RunConfig, make_config, merge, preset_names, read_config, read_preset, with_template
from gar.errors import ConfigError
from gar.records import canonical_hash

_HASH_DIGITS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One cell: a row with a seed. Its run folder is named after method, seed and the hash of its settings.

    Equal cells of several comparisons are one run.

    Attributes:
        label: Label of the row.
        config: Every setting, `records` included.
    """

    label: str
    config: RunConfig

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.seed

    @property
    def title(self) -> str:
        """Name for messages: `gar-grpo, seed 3`."""
        return f"{self.label}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        assert self.config.records.name is not None
        return Path(self.config.records.output_dir) / self.config.records.name

    @property
    def config_path(self) -> Path:
        """Its configuration file, beside the run folder. The process of the cell holds its lock."""
        return self.folder.with_name(f"{self.folder.name}.yaml")

    @property
    def log_path(self) -> Path:
        """What its process printed, beside the run folder."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that decide the numbers, as plain values, so without `records`."""
        return self.config.model_dump(mode="json", exclude={"records"})


def planned_runs(comparison: ComparisonSettings, source: str) -> list[PlannedRun]:
    """All runs, seed by seed, so that finished runs are paired early. A `base` may lie beside `source`.

    Raises:
        ConfigError: A setting of the base run or of a row is wrong, or is decided by the comparison.
    """
    base = _base(comparison, source)
    return [
        _planned_run(row, seed, base, f"{source}: run '{row.label}'")
        for seed in comparison.seeds
        for row in comparison.runs
    ]


def _planned_run(row: RowSettings, seed: int, base: Mapping[str, Any], where: str) -> PlannedRun:
    _check_undecided(row.settings, where)
    config = make_config(merge(base, row.settings) | {"method": row.method, "seed": seed}, source=where)
    if not config.evaluate.sources:
        raise ConfigError(f"{where}: evaluate.sources is empty, so there is nothing to compare. Name at least one.")
    run = PlannedRun(label=row.label, config=with_template(config))
    name = f"{row.method}-seed-{seed}-{canonical_hash(run.settings)[:_HASH_DIGITS]}"
    records = config.records.model_copy(update={"output_dir": f"{config.records.output_dir}/compare", "name": name})
    return PlannedRun(label=row.label, config=run.config.model_copy(update={"records": records}))


def _base(comparison: ComparisonSettings, source: str) -> dict[str, Any]:
    base = comparison.base
    if isinstance(base, str):
        path = Path(source).parent / base
        if base not in preset_names() and not path.is_file():
            known = ", ".join(preset_names())
            raise ConfigError(f"{source}: base: there is no file {path} and no preset '{base}', only {known}")
        base = read_preset(base) if base in preset_names() else read_config(path) or {}
        if not isinstance(base, Mapping):
            raise ConfigError(f"{source}: base {path}: expected a mapping of settings, got {type(base).__name__}")
    _check_undecided(comparison.settings, source)
    return merge(base, comparison.settings)


def _check_undecided(settings: Mapping[str, Any], where: str) -> None:
    for name in settings.keys() & {"method", "seed", "records"}:
        raise ConfigError(f"{where}: settings.{name} is decided by the rows, seeds or the comparison. Leave it out.")
