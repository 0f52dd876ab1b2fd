"""How a run ended, in its record."""

import contextlib
from collections.abc import Iterator

from gar.errors import LostRankError, RecordError
from gar.records import RunFolder
from gar.records.checkpoints import marked_checkpoints
from gar.records.run_record import RunStatus, error_record
from gar.train.inputs import Say


@contextlib.contextmanager
def status_of(folder: RunFolder, say: Say) -> Iterator[None]:
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
    with contextlib.suppress(RecordError):
        folder.update_run(status=status, error=error_record(error))
