"""Checkpoints. Only whole ones count.

    checkpoints/checkpoint-12/model.safetensors, optimizer.pt, ...   what the trainer writes
    checkpoints/checkpoint-12/manifest.jsonl                         marks a whole checkpoint

The manifest lists every file, and the state of the run's own manifest at that step. It is written last and removed
first.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from gar.errors import RecordError
from gar.records.checked import checked
from gar.records.files import sync_file
from gar.records.folders import files_below, remove_folder, sync_tree
from gar.records.manifest import MANIFEST, NO_FACTS, FileFacts, Manifest
from gar.records.run_folder import METRICS, RunFolder, step_of
from gar.records.run_record import settings_hashes

_NAME = re.compile(r"checkpoint-\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundCheckpoint:
    """The checkpoint from which a run resumes. None if it starts from its first step.

    `records` is the state of the run's manifest at `step`. `notes` say which checkpoints were passed over.
    """

    path: Path | None
    step: int
    records: FileFacts
    notes: tuple[str, ...] = ()


def seal_checkpoint(run: RunFolder, step: int) -> None:
    """Flush a checkpoint to the disk and mark it as whole. After an error it does not count."""
    path = run.checkpoints / f"checkpoint-{step}"
    manifest = run.manifest()
    if run.metrics_path.exists():
        sync_file(run.metrics_path)
        manifest.add(METRICS, grows=True)
    records = asdict(manifest.state())
    sync_tree(path)
    (path / MANIFEST).unlink(missing_ok=True)
    _manifest(run, path).add(*files_below(path), facts={"step": step, "records": records})


def rotate_checkpoints(run: RunFolder, keep: int | None) -> None:
    """Remove all marked checkpoints but the newest `keep`, and unmarked leftovers. None or 0 keeps all marked ones."""
    marked = marked_checkpoints(run)
    outdated = marked[: -max(1, keep)] if keep and keep > 0 else []
    for path in [*(path for path in _folders(run) if path not in marked), *outdated]:
        remove_folder(path, mark=MANIFEST)


def remove_later(run: RunFolder, step: int) -> None:
    """Remove the checkpoints after `step`, which a resumed run will write anew."""
    for path in _folders(run):
        if _step(path) > step:
            remove_folder(path, mark=MANIFEST)


def last_checkpoint(run: RunFolder) -> Path | None:
    """The newest checkpoint marked as whole, not verified. None without one."""
    return next(reversed(marked_checkpoints(run)), None)


def marked_checkpoints(run: RunFolder) -> list[Path]:
    """Checkpoints marked as whole, by step."""
    return [path for path in _folders(run) if (path / MANIFEST).exists()]


def find_checkpoint(run: RunFolder, *, num_ranks: int | None) -> FoundCheckpoint:
    """The newest checkpoint from which a run can be resumed exactly, with this number of processes. Every file is read.

    A `RecordError` says what is wrong with each marked checkpoint if none is whole.
    """
    notes = []
    marked = marked_checkpoints(run)
    for path in reversed(_folders(run)):
        if path not in marked:
            notes.append(f"{path.name} was not written completely, and does not count.")
            continue
        fault = checkpoint_fault(run, path, num_ranks=num_ranks) or _records_fault(run, path)
        if fault is None:
            return FoundCheckpoint(path=path, step=_step(path), records=_records(run, path), notes=tuple(notes))
        notes.append(f"{path.name} cannot be resumed from: {fault}.")
    if marked:
        raise RecordError(
            f"{run.path}: no checkpoint is whole. {' '.join(notes)} Nothing was changed. Put back what is missing, or "
            f"remove {run.checkpoints} to begin at the first step again.",
            code="no-checkpoint",
        )
    return FoundCheckpoint(path=None, step=0, records=NO_FACTS, notes=tuple(notes))


def checkpoint_fault(run: RunFolder, path: Path, *, num_ranks: int | None) -> str | None:
    """The fault of a marked checkpoint, in a few words. None if it has none."""
    manifest = _manifest(run, path)
    for fault in manifest.faults():
        return str(fault)
    if manifest.facts.get("step") != _step(path):
        return f"its manifest is of step {manifest.facts.get('step')}"
    return _missing_state(path, num_ranks)


def _missing_state(path: Path, num_ranks: int | None) -> str | None:
    """State that an exact resume needs and the checkpoint lacks. The trainer would silently continue without it."""
    names = {file.name for file in path.iterdir()}
    deepspeed = any(name.startswith("global_step") for name in names)  # it keeps optimizer and scheduler there
    if "trainer_state.json" not in names:
        return "the trainer's state (trainer_state.json) is missing"
    if not deepspeed and not any(name.startswith("optimizer") for name in names):
        return "the optimizer's state is missing. Was trl.save_only_model set?"
    if not deepspeed and "scheduler.pt" not in names:
        return "the learning-rate scheduler's state (scheduler.pt) is missing"
    random_states = {name for name in names if name.startswith("rng_state")}
    if not random_states:
        return "the random state is missing"
    if num_ranks is None:
        return None
    expected = {"rng_state.pth"} if num_ranks == 1 else {f"rng_state_{rank}.pth" for rank in range(num_ranks)}
    if random_states != expected:
        return (
            f"it holds the random state of {len(random_states)} ranks and this job has {num_ranks}: resume with as many"
        )
    return None


def _records_fault(run: RunFolder, path: Path) -> str | None:
    """The fault of the records up to a marked checkpoint's step. None if they have none."""
    try:
        state = _records(run, path)
        manifest = _manifest(run, run.path, size=state.size)
        if fault := manifest.state_fault(state):
            return f"{fault} at step {_step(path)}"
        names = [name for name in manifest.entries if name == METRICS or step_of(name) is not None]
        return next((str(fault) for name in names if (fault := manifest.fault(name))), None)
    except RecordError as error:
        return str(error).rstrip(".")


def _records(run: RunFolder, path: Path) -> FileFacts:
    """State of the run's manifest when a checkpoint was marked."""
    return checked(FileFacts, _manifest(run, path).facts.get("records"), str(path / MANIFEST))


def _manifest(run: RunFolder, path: Path, size: int | None = None) -> Manifest:
    return Manifest(path, settings_hashes(run.read_run()) if run.run_path.exists() else (), size=size)


def _folders(run: RunFolder) -> list[Path]:
    """Checkpoints that the trainer wrote or began, by step. Folders with other names are not ours."""
    named = (path for path in run.checkpoints.glob("checkpoint-*") if _NAME.fullmatch(path.name) and path.is_dir())
    return sorted(named, key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))
