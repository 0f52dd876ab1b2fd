"""Checks before an interrupted run is resumed: same settings, data and packages, and a whole checkpoint."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError

from safetensors import SafetensorError

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, DataError, GarError, RecordError, first_line
from gar.records import RunFolder
from gar.records.checkpoints import FoundCheckpoint, find_checkpoint
from gar.records.dotted import differences, in_words
from gar.records.run_record import package_versions

_UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, EOFError, UnpicklingError, SafetensorError)
"""Errors that torch, safetensors and the Trainer raise on a damaged checkpoint."""


def unchanged_config(folder: RunFolder) -> RunConfig:
    """The settings of a run. A `ConfigError` if `config.yaml` is not what the run was started with."""
    path, started = folder.path / "config.yaml", folder.read_run().settings
    values = read_config(path)
    if values != started:
        changes = in_words(differences(started, values)) if isinstance(values, dict) else ""
        raise ConfigError(
            f"{path}: edited or cut off since the run was started{f': {changes}' if changes else ''}. Restore it: "
            "run.json has all values under 'settings'. For different settings, start a new run with --model.path and "
            "a checkpoint of this one.",
            code="other-settings",
        )
    return make_config(values, source=str(path))


def resume_point(folder: RunFolder, *, data_hash: str, num_ranks: int) -> FoundCheckpoint:
    """The checkpoint to resume from, with notes for the user. A `DataError` if the training problems have changed."""
    record = folder.read_run()
    if record.data_hash not in (None, data_hash):
        raise DataError(
            f"{folder.path}: the training problems have changed since this run was started: the hash of problems and "
            f"anchors was {record.data_hash[:12]}..., is {data_hash[:12]}.... Restore "
            f"{record.settings['data']['source']}, or start a new run.",
            code="other-data",
        )
    found = find_checkpoint(folder, num_ranks=num_ranks)
    notes = list(found.notes)
    if changed := in_words(differences(record.versions, package_versions())):
        notes.append(f"Package versions have changed: {changed}. The result may differ from an uninterrupted run.")
    if found.path is None:
        notes.append("The run has no checkpoint yet, and starts from its first step.")
    return replace(found, notes=tuple(notes))


@contextmanager
def checkpoint_errors(checkpoint: Path | None, is_loaded: Callable[[], bool]) -> Iterator[None]:
    """Turn errors of a resumed run that occur until the checkpoint is loaded into errors of the checkpoint."""
    try:
        yield
    except _UNREADABLE as error:
        if checkpoint is None or is_loaded() or isinstance(error, GarError):
            raise
        raise RecordError(
            f"{checkpoint}: cannot be loaded: {type(error).__name__}: {first_line(error)}. Nothing was changed. "
            "Remove this folder to resume from the checkpoint before it.",
            code="damage",
        ) from error
