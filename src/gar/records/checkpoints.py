"""Checkpoints: `checkpoints/checkpoint-12/` with what the trainer writes. Only whole ones count.

The run's manifest lists the files of a whole checkpoint in one line. The line repeats what was listed since the
checkpoint before, so that a damaged line loses one checkpoint at most.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gar.errors import RecordError
from gar.records.files import sync_tree
from gar.records.manifest import MANIFEST, Manifest
from gar.records.rollout_files import GROWING, file_steps
from gar.records.run_folder import METRICS, RUN, RunFolder, checkpoint_name

_CHECKPOINTS = "checkpoints/"
_INTERRUPT = "interrupt"
"""An empty file in the checkpoint of an interrupted step. It stays only as long as it is the newest checkpoint."""
_NAME = re.compile(r"checkpoint-\d+")
_SAVED = re.compile(r"model|adapter|checkpoints/checkpoint-\d+")
_NO_WEIGHTS = (".pt", ".pth", ".bin")
"""Files that only the trainer reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundCheckpoint:
    """The checkpoint from which a run resumes, None for its first step. `notes` give reasons for skipped ones."""

    path: Path | None = None
    step: int = 0
    notes: tuple[str, ...] = ()


def seal_checkpoint(run: RunFolder, step: int) -> None:
    """Flush a checkpoint to the disk and mark it as whole. After an error it does not count."""
    run.close_rollouts()  # a file ends here, so that a resume removes whole ones
    path, since = run.path / checkpoint_name(step), list[str]()
    for name in reversed(run.manifest.entries):
        if name.startswith(_CHECKPOINTS):
            break
        since.append(name)
    sync_tree(path)
    cards = path.parent.glob("*.md")  # TRL writes the model's card beside the checkpoints
    run.manifest.add_folder(path, *cards, again=reversed(since), gone=[GROWING])


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
        run.manifest.add(gone=run.manifest.listed_below(path))
        shutil.rmtree(path, ignore_errors=True)


def marked_checkpoints(run: RunFolder) -> list[Path]:
    """Checkpoints marked as whole, by step."""
    return [path for path in _folders(run) if run.manifest.listed_below(checkpoint_name(_step(path)))]


def find_checkpoint(run: RunFolder, *, num_ranks: int | None) -> FoundCheckpoint:
    """The newest checkpoint from which a run can be resumed exactly, with this number of processes. Every file is read.

    If no marked checkpoint is whole, a `RecordError` names the fault of each.
    """
    own = [f"{fault}." for fault in run.manifest.own_faults]
    notes = []
    marked = marked_checkpoints(run)
    for path in reversed(_folders(run)):
        if path not in marked:
            notes.append(f"{path.name} was not written completely, and does not count.")
            continue
        fault = checkpoint_fault(run, path, num_ranks=num_ranks)
        if fault is None:
            return FoundCheckpoint(path=path, step=_step(path), notes=(*own, *notes))
        notes.append(f"{path.name} cannot be resumed from: {fault}.")
    unlisted = [name for name in run.manifest.unlisted() if name == GROWING or file_steps(name)]
    if unlisted[1:]:  # a kill leaves one at most
        own.append(f"{MANIFEST} has lost lines: it does not list {unlisted[0]}.")
    if marked or (own and notes):
        raise RecordError(
            f"{run.path}: no checkpoint is whole. {' '.join([*own, *notes])} Nothing was changed. Put back what is "
            f"missing, or remove {run.checkpoints} to begin at the first step again.",
            code="no-checkpoint",
        )
    return FoundCheckpoint(notes=tuple(notes))


def checkpoint_fault(run: RunFolder, path: Path, *, num_ranks: int | None) -> str | None:
    """The fault of a marked checkpoint, or of the records up to its step, in a few words. None if there is none."""
    manifest = run.at_checkpoint(_step(path))
    metrics = [name for name in manifest.entries if name == METRICS]
    rollouts = [(name, file_steps(name)) for name in [*manifest.entries, *manifest.unlisted()]]
    earlier = [name for name, steps in rollouts if steps and steps[0] <= _step(path)]
    faults = map(manifest.fault, [*manifest.below(path), *metrics, *earlier])
    return next((str(fault) for fault in faults if fault), None) or _other_ranks(path, num_ranks)


def check_saved_model(path: str | Path) -> None:
    """Compare a model in a run folder with what the run has saved: `model/`, `adapter/` or a checkpoint. Others pass.

    Reads every file once, but for an optimizer's. A `DamageError` names the first one at fault.
    """
    for folder in dict.fromkeys((Path(path).resolve(), Path(os.path.abspath(path)))):
        for run in folder.parents[:2]:
            name = folder.relative_to(run).as_posix()
            if _SAVED.fullmatch(name) and any((run / file).exists() for file in (RUN, MANIFEST)):
                manifest = Manifest(run)
                for file in manifest.below(name):
                    if not file.endswith(_NO_WEIGHTS):
                        manifest.check(file)


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
