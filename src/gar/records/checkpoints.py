"""Checkpoints: `checkpoints/checkpoint-12/` with what the trainer writes. Only whole ones count.

A checkpoint is whole if its `SHA256SUMS` fits, which is written last. It lists the files of the checkpoint, and before
them the records of the run that belong to it: the files of rollouts, and of `metrics.jsonl` the lines up to its step.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gar.errors import RecordError
from gar.records.files import remove_file, sync_tree
from gar.records.metrics import METRICS, beginning
from gar.records.rollouts import file_steps, rollout_files
from gar.records.run_folder import RUN, RunFolder, checkpoint_name, finished_sums, sealed_sums
from gar.records.sums import SUMS, check_listed, check_sum, file_sum, files_below, write_sums

_INTERRUPT = "interrupt"
"""An empty file in the checkpoint of an interrupted step. It stays only as long as it is the newest checkpoint."""
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
    path, earlier = run.path / checkpoint_name(step), [path for path in marked_checkpoints(run) if _step(path) < step]
    sync_tree(path)
    # Files of rollouts up to the checkpoint before do not change any more, so their checksums are taken from there.
    known = sealed_sums(run.path, _step(earlier[-1])) if earlier else {}
    sums = {f"../../{METRICS}": beginning(run.path / METRICS, step)[1]}
    sums |= {f"../../{name}": known.get(name) or file_sum(run.path / name) for name in rollout_files(run.path)}
    write_sums(path, sums | {name: file_sum(path / name) for name in files_below(path)})


def mark_interrupt(run: RunFolder, step: int) -> None:
    """Mark a checkpoint that is not sealed yet as one of an interrupt, which counts for no limit."""
    (run.path / checkpoint_name(step) / _INTERRUPT).touch()


def rotate_checkpoints(run: RunFolder, keep: int | None) -> None:
    """Remove all marked checkpoints but the newest `keep`, and unmarked leftovers. None or 0 keeps all marked ones.

    A checkpoint of an interrupt is removed once there is a newer one.
    """
    # A checkpoint of an interrupt is not one that `save_steps` asked for, so it does not push another one out.
    marked = marked_checkpoints(run)
    regular = [path for path in marked if not (path / _INTERRUPT).exists()]
    outdated = [path for path in marked[:-1] if path not in regular]
    outdated += regular[: -max(1, keep)] if keep and keep > 0 else []
    for path in [*(path for path in _folders(run) if path not in marked), *outdated]:
        remove_file(path / SUMS)  # first: what a kill leaves of it does not count
        shutil.rmtree(path, ignore_errors=True)


def marked_checkpoints(run: RunFolder) -> list[Path]:
    """Checkpoints marked as whole, by step."""
    return [path for path in _folders(run) if (path / SUMS).exists()]


def find_checkpoint(run: RunFolder, *, num_ranks: int | None) -> FoundCheckpoint:
    """The newest checkpoint from which a run can be resumed exactly, with this number of processes. Every file is read.

    If no marked checkpoint is whole, a `RecordError` names the fault of each.
    """
    notes, marked = list[str](), marked_checkpoints(run)
    for path in reversed(_folders(run)):
        if path not in marked:
            notes.append(f"{path.name} was not written completely, and does not count.")
            continue
        fault = checkpoint_fault(run, path, num_ranks=num_ranks)
        if fault is None:
            return FoundCheckpoint(path=path, step=_step(path), notes=tuple(notes))
        notes.append(f"{path.name} cannot be resumed from: {fault}")
    if marked:
        raise RecordError(
            f"{run.path}: no checkpoint is whole. {' '.join(notes)} Nothing was changed. Put back what is missing, or "
            f"remove {run.checkpoints} to begin at the first step again.",
            code="no-checkpoint",
        )
    return FoundCheckpoint(notes=tuple(notes))


def checkpoint_fault(run: RunFolder, path: Path, *, num_ranks: int | None) -> str | None:
    """The fault of a marked checkpoint, or of the records up to its step, as a sentence. None if there is none."""
    # What is there, then what is listed: so a file is found that is missing on either side.
    try:
        sums = sealed_sums(run.path, _step(path))
        own = (f"{checkpoint_name(_step(path))}/{name}" for name in files_below(path))
        for name in dict.fromkeys([*check_records(run.path, _step(path), sums), *own, *sums]):
            if name != METRICS:
                check_sum(run.path, name, sums)
    except RecordError as error:
        return str(error).removeprefix(f"{run.path}/")
    return _other_ranks(path, num_ranks)


def check_records(run: Path, step: int, sums: dict[str, str]) -> list[str]:
    """The files of rollouts up to the step of a checkpoint, which are not read yet.

    Raises:
        RecordError: One is missing or not listed, or the lines of metrics up to that step are not what was written.
    """
    if beginning(run / METRICS, step)[1] != sums.get(METRICS):
        text = f"the lines up to step {step} are not what was written: their checksum in {SUMS} differs."
        raise RecordError(f"{run / METRICS}: {text}", code="damage")
    there = [name for name, (first, _) in rollout_files(run).items() if first <= step]
    names = list(dict.fromkeys([*there, *filter(file_steps, sums)]))
    for name in names:
        check_listed(run, name, sums)
    return names


def check_saved_model(path: str | Path) -> None:
    """Compare a model in a run folder with what the run has saved: `model/`, `adapter/` or a checkpoint. Others pass.

    So does `model/` of a run that is not finished. Reads every file once, but for an optimizer's. A `RecordError` names
    the first one at fault.
    """
    # A link may lead into a run folder, or out of one to where the weights are.
    for folder in dict.fromkeys((Path(path).resolve(), Path(os.path.abspath(path)))):
        for run in folder.parents[:2]:
            name = folder.relative_to(run).as_posix()
            if _SAVED.fullmatch(name) and any((run / file).exists() for file in (RUN, SUMS)):
                sums = _saved_sums(run, folder)
                there = [f"{name}/{file}" for file in files_below(folder)] if sums else []
                listed = [file for file in sums if file.startswith(f"{name}/")]
                for file in dict.fromkeys([*listed, *there]):
                    if not file.endswith(_NO_WEIGHTS):
                        check_sum(run, file, sums)


def _saved_sums(run: Path, model: Path) -> dict[str, str]:
    """The checksums of a model in a run folder. Empty if it has none yet."""
    if model.parent == run:
        return finished_sums(run)
    if not (model / SUMS).exists():
        raise RecordError(f"{model}: this checkpoint was not written completely: it has no {SUMS}.", code="damage")
    return sealed_sums(run, _step(model))


def _other_ranks(path: Path, num_ranks: int | None) -> str | None:
    """The fault of a checkpoint of more or fewer ranks. The trainer would silently continue without random state."""
    random_states = {file.name for file in path.glob("rng_state*")}
    if not random_states:
        return "The random state is missing. Was trl.save_only_model set?"
    expected = {"rng_state.pth"} if num_ranks == 1 else {f"rng_state_{rank}.pth" for rank in range(num_ranks or 0)}
    if num_ranks is None or random_states == expected:
        return None
    return f"It holds the random state of {len(random_states)} ranks and this job has {num_ranks}: resume with as many."


def _folders(run: RunFolder) -> list[Path]:
    """Checkpoints that the trainer wrote or began, by step."""
    return [run.path / checkpoint_name(step) for step in run.checkpoint_steps()]


def _step(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))
