"""Plan the runs of a comparison: one configuration for each row and seed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from gar.config import RunConfig, make_config, merge, preset_names, read_config, read_preset, with_template
from gar.errors import ConfigError, did_you_mean
from gar.records import canonical_hash
from gar.settings import Settings, errors_in_words

_HASH_DIGITS = 12
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
_Labels = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class RowSettings(Settings):
    """One row of the table: a method, and its changes to the base run."""

    label: Name = ""
    """The row's name in files and tables. By default the method's."""
    method: str
    """As in `gar train --method`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Changes to the settings of the base run, nested as in a configuration of `gar train`."""
    against: _Labels | None = None
    """Labels of the rows it is tested against. By default the first row."""

    @model_validator(mode="before")
    @classmethod
    def _default_label(cls, values: Any) -> Any:
        values = {"method": values} if isinstance(values, str) else values
        return {"label": values["method"], **values} if isinstance(values, dict) and "method" in values else values


class ComparisonSettings(Settings):
    """Methods times seeds, on one model, data, prompt order and rollout budget."""

    name: Name
    """Names the folders of results and runs."""
    base: str | dict[str, Any]
    """Settings of every run: a preset, a file beside this one, or the settings themselves."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Changes to the settings of `base`, for every run."""
    runs: Annotated[tuple[RowSettings, ...], Field(min_length=1)]
    """The rows: names of methods, or mappings. Costs are relative to the first."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    """The seeds. With one seed every row sees the same problems in the same order."""

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        labels = [row.label for row in self.runs]
        for values, word in ((labels, "label"), (self.seeds, "seed")):
            for value, count in Counter(values).items():
                if count > 1:
                    raise ValueError(f"{word} {value!r} appears twice. Remove one, or give its row a different label.")
        for label, other in ((row.label, other) for row in self.runs for other in row.against or ()):
            if other not in labels or other == label:
                hint = " That is the row itself." if other == label else did_you_mean(other, labels)
                raise ValueError(f"run {label!r} cannot be tested against {other!r}.{hint}")
        return self

    def against(self, row: RowSettings) -> tuple[str, ...]:
        """Labels of the rows that `row` is tested against."""
        if row.against is not None:
            return row.against
        return () if row is self.runs[0] else (self.runs[0].label,)


def read_comparison(source: str) -> ComparisonSettings:
    """Read a comparison from a YAML file, or by name if it ships with the package.

    Raises:
        ConfigError: There is no such file, or a key or value in it is wrong.
    """
    shipped = Path(__file__).parents[1] / "configs" / "compare" / f"{source}.yaml"
    values = read_config(shipped if shipped.is_file() and not Path(source).exists() else source)
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: expected a mapping with name, base, runs and seeds, got {type(values).__name__}")
    try:
        return ComparisonSettings.model_validate(values)
    except ValidationError as error:
        raise errors_in_words(error, ComparisonSettings, source=source) from error


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
        """Its configuration file, beside the run folder. The comparison that runs the cell holds its lock."""
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
    """All runs in the order of their seeds, so that the first finished runs can be paired.

    A relative `base` may lie beside `source`.

    Raises:
        ConfigError: A setting of the base run or of a row is wrong.
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
    return replace(run, config=run.config.model_copy(update={"records": records}))


def _base(comparison: ComparisonSettings, source: str) -> dict[str, Any]:
    base = comparison.base
    if isinstance(base, str):
        path = Path(source).parent / base
        if base not in preset_names() and not path.is_file():
            raise ConfigError(
                f"{source}: base is {base}, expected a file beside this one, or one of the presets "
                f"{', '.join(preset_names())}.{did_you_mean(base, preset_names())}"
            )
        base = read_preset(base) if base in preset_names() else read_config(path) or {}
        if not isinstance(base, Mapping):
            raise ConfigError(f"{source}: base {path}: expected a mapping of settings, got {type(base).__name__}")
    _check_undecided(comparison.settings, source)
    return merge(base, comparison.settings)


def _check_undecided(settings: Mapping[str, Any], where: str) -> None:
    for name in settings.keys() & {"method", "seed", "records"}:
        raise ConfigError(f"{where}: settings.{name} is decided by the rows, seeds or the comparison. Leave it out.")
