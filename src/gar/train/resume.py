"""How a run ended, and checks before it is resumed: same settings, data and packages, and a whole checkpoint."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, DataError, GarError, LostRankError, RecordError, first_line
from gar.records import RunFolder
from gar.records.checkpoints import FoundCheckpoint, find_checkpoint, marked_checkpoints
from gar.records.dotted import changes_in_words, differences, leaves
from gar.records.files import regular
from gar.records.run_record import RunStatus, error_record, package_versions

_UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, EOFError, UnpicklingError, SafetensorError)
"""Errors that torch, safetensors and the Trainer raise on a damaged checkpoint."""

_IN_CHECKPOINT = {
    f"trl.{name}" for name in ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim")
}
"""Settings that a loaded optimizer restores: other values would be recorded but not used."""


@contextmanager
def status_of(folder: RunFolder, say: Callable[[str], None]) -> Iterator[None]:
    """Record how the run ended, even after an error. A full disk must not hide the cause."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        _record_end(folder, "interrupted", interrupt)
        whole = marked_checkpoints(folder)
        kept = f"its last whole checkpoint is {whole[-1].name}" if whole else "it has no whole checkpoint yet"
        say(f"[yellow]Interrupted; {kept}. Resume with: gar train --resume {folder.path}[/]")
        interrupt.args = ("interrupted",)
        raise
    except BaseException as error:
        _record_end(folder, "interrupted" if isinstance(error, LostRankError) else "failed", error)
        if isinstance(error, OSError) and not isinstance(error, RecordError):
            raise RecordError(
                f"{folder.path}: a file could not be written or read: {error}. What was written before is intact. "
                f"Is the disk full? Then make room, and resume with: gar train --resume {folder.path}"
            ) from error
        raise


def _record_end(folder: RunFolder, status: RunStatus, error: BaseException) -> None:
    """Write to `run.json` how the run ended and why, if the disk allows it."""
    with suppress(RecordError):
        folder.update_run(status=status, error=error_record(error))


def unfinished_run(path: str | Path) -> RunFolder:
    """The folder of a run that can be continued. A `RecordError` if there is none, or its run is finished."""
    folder = RunFolder.open(path)
    if folder.read_run().status == "finished":
        raise RecordError(f"{path}: this run is finished. There is nothing to resume. Its model is in {path}/model.")
    return folder


def resumed_config(folder: RunFolder, *, allow_config_change: bool = False) -> RunConfig:
    """The settings of a run. A `ConfigError` if `config.yaml` was cut off, or edited and that is not allowed.

    A killed run may not have one yet.
    """
    path, started = folder.path / "config.yaml", folder.read_run().settings
    values = read_config(regular(path)) if path.exists() else started
    there = dict(leaves(values)) if isinstance(values, Mapping) else {}
    missing = [name for name, _ in leaves(started) if name not in there]
    if values != started and (missing or not allow_config_change):
        if missing:
            what, accept = f"{len(missing)} settings are missing, such as {missing[0]}", ""
        else:
            what = changes_in_words(differences(started, values))
            accept = " Or accept the new values with --allow-config-change, which run.json records."
        raise ConfigError(
            f"{path}: edited or cut off since the run was started: {what}. Restore it: run.json has all values under "
            f"'settings'.{accept}",
            code="other-settings",
        )
    return make_config(values, source=str(path))


def resume_point(
    folder: RunFolder, config: RunConfig, *, data_hash: str, num_ranks: int, allow_config_change: bool = False
) -> tuple[FoundCheckpoint, dict[str, Any]]:
    """The checkpoint to resume from, with notes for the user, and accepted changes: old and new value by dotted name.

    A `DataError` if the training problems have changed and that is not allowed. A `ConfigError` if a setting has
    changed that the optimizer in the checkpoint restores.
    """
    # Settings that differ were accepted when they were read. Problems are compared only now that they are loaded.
    record = folder.read_run()
    changes = {name: list(pair) for name, pair in differences(record.settings, config.model_dump(mode="json")).items()}
    if record.data_hash not in (None, data_hash):
        changes["data_hash"] = [record.data_hash, data_hash]
        if not allow_config_change:
            raise DataError(
                f"{folder.path}: the training problems have changed since this run was started: the hash of problems "
                f"and expert solutions was {record.data_hash[:12]}..., is {data_hash[:12]}.... Restore "
                f"{record.settings['data']['source']}, or accept the new problems with --allow-config-change, which "
                "run.json records.",
                code="other-data",
            )
    # An accepted setting must have an effect.
    found = find_checkpoint(folder, num_ranks=num_ranks)
    fixed = sorted(_IN_CHECKPOINT & changes.keys())
    if fixed and found.path:
        raise ConfigError(
            f"{folder.path}: {', '.join(fixed)} cannot change: the optimizer in {found.path.name} would restore the "
            f"old value. Put the setting back, or start a new run with --model.path {found.path}.",
            code="in-checkpoint",
        )
    notes = list(found.notes)
    if changed := changes_in_words(differences(record.versions, package_versions())):
        notes.append(f"Package versions have changed: {changed}. The result may differ from an uninterrupted run.")
    if found.path is None:
        notes.append("The run has no checkpoint yet, and starts from its first step.")
    return replace(found, notes=tuple(notes)), changes


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
