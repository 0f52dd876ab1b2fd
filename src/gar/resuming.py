"""Checks before an interrupted run goes on: same settings, data and packages, and a whole checkpoint."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from safetensors import SafetensorError

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, DataError, GarError, RecordError
from gar.methods import METHODS
from gar.records import RunFolder, canonical_hash
from gar.records.checkpoints import find_checkpoint
from gar.records.dotted import differences, in_words
from gar.records.run_record import package_versions
from gar.settings import FORMER_DEFAULTS

_UNREADABLE = (
    OSError,
    ValueError,
    RuntimeError,
    KeyError,
    TypeError,
    EOFError,
    pickle.UnpicklingError,
    SafetensorError,
)
"""What torch, safetensors and the Trainer raise over a damaged checkpoint."""

_IN_CHECKPOINT = {f"trl.{name}" for name in (
    "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim",
)}  # fmt: skip
"""Settings that a loaded optimiser holds itself: other values would be recorded but not used."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """An interrupted run that can go on.

    Attributes:
        folder: Its run folder.
        config: Its settings.
        override: Whether to go on although settings, data or records have changed.
        changes: Old and new value of everything that has changed, by name.
        notes: Sentences for the user.
        checkpoint: Path of the checkpoint to go on from; None for the first step.
        step: Number of optimiser steps behind it.
    """

    folder: RunFolder
    config: RunConfig
    override: bool
    changes: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    checkpoint: str | None = None
    step: int = 0

    def with_data(self, data_hash: str) -> "Resumption":
        """Compare the training problems with those that the run was started on.

        Raises:
            DataError: They differ, and `override` is off.
        """
        before = self.folder.read_run().data_hash
        if before in (None, data_hash):
            return self
        if not self.override:
            raise DataError(
                f"{self.folder.path}: the training problems are not those that this run was started on: the hash of "
                f"problems and anchors was {before[:12]}..., is {data_hash[:12]}.... Was {self.config.data.source} "
                "changed? Put it back, or go on with the new ones by --override, which run.json will say."
            )
        return replace(self, changes={**self.changes, "data_hash": [before, data_hash]})

    def with_checkpoint(self, num_ranks: int) -> "Resumption":
        """Find the newest whole checkpoint.

        Raises:
            ConfigError: A setting was changed that the checkpoint holds itself.
            RecordError: There are checkpoints, but none is whole.
        """
        newest = find_checkpoint(self.folder, num_ranks=num_ranks, tolerate_records=self.override)
        held = sorted(_IN_CHECKPOINT & self.changes.keys())
        if held and newest.path:
            raise ConfigError(
                f"{self.folder.path}: {', '.join(held)} cannot be overridden: the optimiser in {newest.path.name} "
                "holds the old value and would go on with it. Put it back, or start a new run with "
                f"--model.path {newest.path}."
            )
        changes = dict(self.changes)
        if newest.records_fault:
            changes["records"] = ["whole", newest.records_fault]
        notes = [*self.notes, *newest.notes]
        if newest.path is None:
            notes.append("It has no checkpoint yet, and begins at its first step.")
        path = str(newest.path) if newest.path else None
        return replace(self, changes=changes, notes=notes, checkpoint=path, step=newest.step)


def read_resumption(folder: RunFolder, *, override: bool = False) -> Resumption:
    """Read the settings of a run, and compare them with those it was started with.

    Raises:
        ConfigError: `config.yaml` is empty or cut off, or was edited and `override` is off; names what changed.
    """
    path = folder.path / "config.yaml"
    record = folder.read_run()
    values = read_config(path)
    expected = record.settings or RunConfig().model_dump(mode="json")
    where = "run.json has them all under 'settings'." if record.settings else ""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: no settings in it. Was the file emptied or cut off? {where}".rstrip())
    lacking = _lacking(expected, values)
    same = _hash(values) == record.config_hash
    if lacking and not same:
        raise ConfigError(
            f"{path}: {len(lacking)} settings are missing, among them {', '.join(lacking[:3])}. Was the file cut off? "
            f"{where}".rstrip()
        )
    config = make_config(values, source=str(path))
    changes: dict[str, Any] = {}
    if not same:
        changes = {"config_hash": [record.config_hash, _hash(values)]}
        if record.settings is not None:
            changes = {name: list(pair) for name, pair in differences(record.settings, values).items()}
        if not override:
            raise ConfigError(_edited(path, changes))
    notes = [*_other_versions(record.versions), *_former_defaults(config)]
    return Resumption(folder=folder, config=config, override=override, changes=changes, notes=notes)


def _edited(path: Any, changes: Mapping[str, Any]) -> str:
    return (
        f"{path}: edited since the run was started: {in_words(changes)}. Put the old values back for the result "
        "of an uninterrupted run, or go on with the new ones by --override, which run.json will say."
    )


def _other_versions(before: Mapping[str, str | None]) -> list[str]:
    now = package_versions()
    changed = [f"{name} was {version}, is {now[name]}" for name, version in before.items()
               if name in now and version != now[name]]  # fmt: skip
    if not changed:
        return []
    return [f"Other versions than at the start: {', '.join(changed)}. The result may differ from an uninterrupted run."]


def _former_defaults(config: RunConfig) -> list[str]:
    """Older versions took their default for the method's own value; today it is a number like any other."""
    defined = {f"signal.{name}": value for name, value in METHODS[config.method].signal.items()}
    return [
        f"{name} is {former}, which was the default of older versions and then stood for {config.method}'s value, "
        f"{defined[name]}. If one of them began this run, set {name} to auto in config.yaml and add --override."
        for name, former in FORMER_DEFAULTS.items()
        if defined.get(name, former) != former and getattr(config.signal, name.removeprefix("signal.")) == former
    ]


def _lacking(whole: Mapping[str, Any], part: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of keys that `part` lacks."""
    names = []
    for key, value in whole.items():
        if key not in part:
            names.append(prefix + key)
        elif isinstance(value, Mapping):
            inner = part[key]
            names += _lacking(value, inner, f"{prefix}{key}.") if isinstance(inner, Mapping) else [prefix + key]
    return names


def _hash(values: Mapping[str, Any]) -> str | None:
    try:
        return canonical_hash(values)
    except (TypeError, ValueError):  # values that a resolved configuration never holds
        return None


@contextmanager
def checkpoint_errors(resumption: Resumption | None, is_loaded: Callable[[], bool]) -> Iterator[None]:
    """Blame the checkpoint for what goes wrong until it is loaded.

    Args:
        resumption: None for a run that begins; then every error passes.
        is_loaded: Whether training has begun.

    Raises:
        RecordError: The checkpoint cannot be loaded.
    """
    try:
        yield
    except _UNREADABLE as error:
        if resumption is None or resumption.checkpoint is None or is_loaded() or isinstance(error, GarError):
            raise
        words = str(error).strip().partition("\n")[0]
        raise RecordError(
            f"{resumption.checkpoint}: cannot be loaded: {type(error).__name__}: {words}. Nothing was changed. Without "
            "this folder the checkpoint before it is resumed from."
        ) from error
