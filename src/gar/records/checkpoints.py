"""Checkpoints: `checkpoints/checkpoint-12/` with what the trainer writes. Only whole ones count.

The run's manifest lists the files of a whole checkpoint in one line, with the metrics and its own lines so far.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gar.errors import RecordError
from gar.records.files import files_below, sync, sync_tree
from gar.records.manifest import MANIFEST
from gar.records.run_folder import METRICS, RunFolder, checkpoint_name, step_of

_INTERRUPT = "interrupt"
"""An empty file in the checkpoint of an interrupted step. It stays only as long as it is the newest checkpoint."""

_NAME = re.compile(r"checkpoint-\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundCheckpoint:
    """The checkpoint from which a run resumes, None for its first step. `notes` give reasons for skipped ones."""

    path: Path | None = None
    step: int = 0
    notes: tuple[str, ...] = ()


def seal_checkpoint(run: RunFolder, step: int) -> None:
    """Flush a checkpoint to the disk and mark it as whole. After an error it does not count."""
    path, manifest = run.path / checkpoint_name(step), run.manifest()
    growing = [known.name for known in (run.metrics_path, manifest.path) if known.exists()]
    for name in growing:
        sync(run.path / name)
    sync_tree(path)
    manifest.add(*files_below(path), grows=growing)


def mark_interrupt(run: RunFolder, step: int) -> None:
    """Mark a checkpoint that is not sealed yet as one of an interrupt, which counts for no limit."""
    (run.path / checkpoint_name(step) / _INTERRUPT).touch()


def rotate_checkpoints(run: RunFolder, keep: int | None) -> None:
    """Remove all marked checkpoints but the newest `keep`, and unmarked leftovers. None or 0 keeps all marked ones.

    A checkpoint of an interrupt is removed once there is a newer one.
    """
    marked = marked_checkpoints(run)
    regular = [path for path in marked if not (path / _INTERRUPT).exists()]
    outdated = [path for path in marked[:-1] if path not in regular]
    outdated += regular[: -max(1, keep)] if keep and keep > 0 else []
    for path in [*(path for path in _folders(run) if path not in marked), *outdated]:
        shutil.rmtree(path, ignore_errors=True)


def marked_checkpoints(run: RunFolder) -> list[Path]:
    """Checkpoints marked as whole, by step."""
    marked = {name.rpartition("/")[0] for name in run.manifest().entries}
    return [path for path in _folders(run) if checkpoint_name(_step(path)) in marked]


def find_checkpoint(run: RunFolder, *, num_ranks: int | None) -> FoundCheckpoint:
    """The newest checkpoint from which a run can be resumed exactly, with this number of processes. Every file is read.

    If no marked checkpoint is whole, a `RecordError` names the fault of each.
    """
    notes = []
    marked = marked_checkpoints(run)
    for path in reversed(_folders(run)):
        if path not in marked:
            notes.append(f"{path.name} was not written completely, and does not count.")
            continue
        fault = checkpoint_fault(run, path, num_ranks=num_ranks)
        if fault is None:
            return FoundCheckpoint(path=path, step=_step(path), notes=tuple(notes))
        notes.append(f"{path.name} cannot be resumed from: {fault}.")
    unlisted = [name for name in run.manifest().unlisted() if step_of(name) is not None]
    lost = unlisted[1:] and notes  # a kill leaves one at most
    if lost:
        notes.append(f"{MANIFEST} has lost lines: it does not list {unlisted[0]}.")
    if marked or lost:
        raise RecordError(
            f"{run.path}: no checkpoint is whole. {' '.join(notes)} Nothing was changed. Put back what is missing, or "
            f"remove {run.checkpoints} to begin at the first step again.",
            code="no-checkpoint",
        )
    return FoundCheckpoint(notes=tuple(notes))


def checkpoint_fault(run: RunFolder, path: Path, *, num_ranks: int | None) -> str | None:
    """The fault of a marked checkpoint, or of the records up to its step, in a few words. None if there is none."""
    inside = f"{checkpoint_name(_step(path))}/"
    manifest = run.manifest(until=inside)
    for fault in manifest.own_faults:
        return str(fault)
    listed = [name for name in manifest.entries if name.startswith(inside) or name in (METRICS, MANIFEST)]
    steps = [name for name in manifest.entries if step_of(name) is not None]
    there = [file.relative_to(run.path).as_posix() for file in files_below(path)]
    faults = map(manifest.fault, dict.fromkeys([*listed, *steps, *there]))
    return next((str(fault) for fault in faults if fault), None) or _other_ranks(path, num_ranks)


def _other_ranks(path: Path, num_ranks: int | None) -> str | None:
    """The fault of a checkpoint of more or fewer ranks. The trainer would silently continue without random state."""
    random_states = {file.name for file in path.glob("rng_state*")}
    if not random_states:
        return "the random state is missing. Was trl.save_only_model set?"
    expected = {"rng_state.pth"} if num_ranks == 1 else {f"rng_state_{rank}.pth" for rank in range(num_ranks or 0)}
    if num_ranks is None or random_states == expected:
        return None
    return f"it holds the random state of {len(random_states)} ranks and this job has {num_ranks}: resume with as many"


def _folders(run: RunFolder) -> list[Path]:
    """Checkpoints that the trainer wrote or began, by step. Folders with other names are not ours."""
    named = (path for path in run.checkpoints.glob("checkpoint-*") if _NAME.fullmatch(path.name) and path.is_dir())
    return sorted(named, key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))
