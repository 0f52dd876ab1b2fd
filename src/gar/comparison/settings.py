"""The settings of a comparison: rows, seeds and base run. Importing this imports neither torch nor NumPy."""

from collections import Counter
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from gar.config import in_words, parse_yaml, read_config
from gar.errors import ConfigError, did_you_mean
from gar.settings import Settings

_FOLDER = resources.files("gar") / "configs" / "compare"
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
_Labels = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class RowSettings(Settings):
    """One row of the table: a method, and its changes to the base run."""

    label: Name = ""
    """Its name in files and tables. By default the method's."""
    method: str
    """As in `gar train --method`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings over those of the base run, nested as in a configuration of `gar train`."""
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
    """Settings over those of `base`, for every run."""
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
                hint = " That is the row itself." if other == label else _near(other, labels)
                raise ValueError(f"run {label!r} cannot be tested against {other!r}.{hint}")
        return self

    def against(self, row: RowSettings) -> tuple[str, ...]:
        """Labels of the rows that `row` is tested against."""
        if row.against is not None:
            return row.against
        return () if row is self.runs[0] else (self.runs[0].label,)

    @property
    def results_folder(self) -> Path:
        """Folder of the small JSON files and the tables."""
        return Path("results") / self.name


def comparison_names() -> list[str]:
    """Comparisons that ship with the package, as `gar compare NAME` takes them."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))


def read_comparison(source: str) -> ComparisonSettings:
    """Read a comparison from a YAML file, or by name if it ships with the package.

    Raises:
        ConfigError: The comparison is unknown, or a key or value in it is wrong.
    """
    if Path(source).exists() or source.endswith((".yaml", ".yml")):
        values = read_config(source)
    elif source in comparison_names():
        values = parse_yaml((_FOLDER / f"{source}.yaml").read_text(encoding="utf-8"), source)
    else:
        raise ConfigError(f"{source}: no such file.{_near(source, comparison_names())}")
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: expected a mapping with name, base, runs and seeds, got {type(values).__name__}")
    try:
        return ComparisonSettings.model_validate(values)
    except ValidationError as error:
        # Wrong rows do not count: pydantic then also says that there are too few.
        lines = [line for line in error.errors() if line["type"] != "too_short" or not line["input"]]
        raise ConfigError("\n".join(f"{source}: {_explain(line)}" for line in lines)) from error


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        section = RowSettings if "runs" in error["loc"][:-1] else ComparisonSettings
        return f"unknown key '{where}'.{_near(str(error['loc'][-1]), section.model_fields)}"
    if error["type"] == "missing":
        return f"{where} is missing."
    return in_words(error)


def _near(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or all of them, for an error text."""
    return did_you_mean(word, known) or f" Known: {', '.join(known)}."
