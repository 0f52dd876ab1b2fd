"""Checks before an interrupted run is resumed: same settings, data and packages, and a whole checkpoint."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, DataError, GarError, RecordError, first_line
from gar.records import RunFolder
from gar.records.checkpoints import FoundCheckpoint, find_checkpoint
from gar.records.dotted import differences, in_words, leaves
from gar.records.run_record import package_versions, settings_hash

_UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, EOFError, UnpicklingError, SafetensorError)
"""Errors that torch, safetensors and the Trainer raise on a damaged checkpoint."""

_IN_CHECKPOINT = {
    f"trl.{name}" for name in ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim")
}
"""Settings that a loaded optimizer restores: other values would be recorded but not used."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """An interrupted run that can be resumed, from a checkpoint or else from its first step.

    `changes` has the old and new value of everything that has changed, and `notes` are for the user.
    """

    folder: RunFolder
    config: RunConfig
    allow_config_change: bool
    changes: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    checkpoint: FoundCheckpoint = field(default_factory=FoundCheckpoint)

    def with_data(self, data_hash: str) -> "Resumption":
        """Compare the training problems, by their hash, with those that the run was started on."""
        before = self.folder.read_run().data_hash
        if before in (None, data_hash):
            return self
        if not self.allow_config_change:
            raise DataError(
                f"{self.folder.path}: the training problems have changed since this run was started: the hash of "
                f"problems and anchors was {before[:12]}..., is {data_hash[:12]}.... Was {self.config.data.source} "
                "changed? Put it back, or accept the new problems with --allow-config-change, which run.json records.",
                code="other-data",
            )
        return replace(self, changes={**self.changes, "data_hash": [before, data_hash]})

    def with_checkpoint(self, num_ranks: int) -> "Resumption":
        """Find the newest whole checkpoint. An error if a setting was changed that its optimizer restores."""
        newest = find_checkpoint(self.folder, num_ranks=num_ranks)
        fixed = sorted(_IN_CHECKPOINT & self.changes.keys())
        if fixed and newest.path:
            raise ConfigError(
                f"{self.folder.path}: {', '.join(fixed)} cannot be overridden: the optimizer in {newest.path.name} "
                "would restore the old value. Put the setting back, or start a new run with "
                f"--model.path {newest.path}.",
                code="in-checkpoint",
            )
        notes = [*self.notes, *newest.notes]
        if newest.path is None:
            notes.append("The run has no checkpoint yet, and starts from its first step.")
        return replace(self, notes=notes, checkpoint=newest)


def read_resumption(folder: RunFolder, *, allow_config_change: bool = False) -> Resumption:
    """Read the settings of a run, and compare them with those it was started with."""
    path = folder.path / "config.yaml"
    record = folder.read_run()
    values = read_config(path)
    there = dict(leaves(values)) if isinstance(values, Mapping) else {}
    missing = [name for name, _ in leaves(record.settings) if name not in there]
    is_unchanged = settings_hash(values) == record.config_hash
    if missing and not is_unchanged:
        raise ConfigError(
            f"{path}: {len(missing)} settings are missing, among them {', '.join(missing[:3])}. Was the file emptied "
            "or cut off? run.json has them all under 'settings'.",
            code="lost-settings",
        )
    config = make_config(values, source=str(path))
    changes: dict[str, Any] = {}
    if not is_unchanged:
        changes = {name: list(pair) for name, pair in differences(record.settings, values).items()}
        if not allow_config_change:
            raise ConfigError(
                f"{path}: edited since the run was started: {in_words(changes)}. Put the old values back for the "
                "result of an uninterrupted run, or accept the new ones with --allow-config-change, which run.json "
                "records.",
                code="other-settings",
            )
    notes = []
    if changed := in_words(differences(record.versions, package_versions())):
        notes = [f"Package versions have changed: {changed}. The result may differ from an uninterrupted run."]
    return Resumption(
        folder=folder, config=config, allow_config_change=allow_config_change, changes=changes, notes=notes
    )


@contextmanager
def checkpoint_errors(resumption: Resumption | None, is_loaded: Callable[[], bool]) -> Iterator[None]:
    """Turn errors of a resumed run that occur until the checkpoint is loaded into errors of the checkpoint."""
    try:
        yield
    except _UNREADABLE as error:
        if resumption is None or resumption.checkpoint.path is None or is_loaded() or isinstance(error, GarError):
            raise
        raise RecordError(
            f"{resumption.checkpoint.path}: cannot be loaded: {type(error).__name__}: {first_line(error)}. Nothing was "
            "changed. Remove this folder to resume from the checkpoint before it.",
            code="damage",
        ) from error
