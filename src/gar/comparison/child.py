"""One run of a comparison in a process of its own: `gar train CONFIG.yaml`, until it ends or the comparison is gone.

    python -m gar.comparison.child CONFIG.yaml

Standard input is a pipe from the comparison. When that closes, be it by kill -9, the run is interrupted as by Ctrl-C:
it keeps its last whole checkpoint. Until it has ended, it holds the lock of CONFIG.yaml, and its successor waits.
"""

import os
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from gar.comparison.result import USAGE
from gar.config import RunConfig, make_config, read_config
from gar.errors import GarError
from gar.records import RunFolder
from gar.records.checkpoints import find_checkpoint
from gar.records.files import io_error
from gar.records.lock import only_writer, refuse_writer
from gar.resuming import read_resumption

_INTERRUPTED = 130
_GRACE_SECONDS = 20.0
_WAIT_SECONDS = 30.0


def main(arguments: list[str]) -> int:
    """Train, or go on with what an interrupted comparison left.

    Returns:
        The exit status, as that of `gar train`.
    """
    start = time.perf_counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    threading.Thread(target=_end_with_the_comparison, daemon=True).start()
    try:
        with only_writer(Path(arguments[0]), wait_seconds=_WAIT_SECONDS):
            folder = _run(arguments[0])
            folder.write_json(USAGE, {"wall_seconds": time.perf_counter() - start, **_usage()})
    except GarError as error:
        print(f"gar train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _run(source: str) -> RunFolder:
    config = make_config(read_config(source), source=source)
    assert config.records.name is not None
    path = Path(config.records.folder) / config.records.name
    if not _can_go_on(path, config):
        _remove(path)
        from gar.training import train

        return train(config, command=["gar", "train", source])
    from gar.training import resume

    return resume(path)


def _can_go_on(path: Path, config: RunConfig) -> bool:
    """An interrupted run under the same settings with a whole checkpoint. A failed one would fail again."""
    try:
        folder = RunFolder.open(path)
        if folder.read_run().status not in ("running", "interrupted") or read_resumption(folder).config != config:
            return False
        return find_checkpoint(folder, num_ranks=1).path is not None
    except GarError:
        return False


def _remove(path: Path) -> None:
    refuse_writer(path)  # a `gar train --resume` by hand
    try:
        if path.exists():
            shutil.rmtree(path)
    except OSError as error:
        raise io_error(path, "removed for a new start", error) from error


def _usage() -> dict[str, float]:
    """Processor time and largest resident set of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_memory_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def _end_with_the_comparison() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would be held when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
