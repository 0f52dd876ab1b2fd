"""trackio's local store, kept as a view of `metrics.jsonl`.

trackio writes in the background: a kill loses its last rows, and a resumed run logs the steps after its checkpoint
again. A step is one row there, so an evaluation joins the row of its step. A run's rows are written anew from
`metrics.jsonl` at the first step after a start or a resume, and once more at its end where the steps differ. On a
network file system trackio collects rows in files of its own first; these are not repaired.
"""

import contextlib
import io
import math
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gar.config import RunConfig
from gar.records import RunFolder

PROJECT = "gar"
_START = "start_time"
"""Key of a tracked run's configuration that tells it from a run of the same name in another folder."""


@contextlib.contextmanager
def tracker(config: RunConfig, folder: RunFolder) -> Iterator[Callable[[Mapping[str, Any], int], None] | None]:
    """Where metrics go besides the run folder: trackio's local store under the folder's name, unless switched off.

    Yields:
        Takes the metrics of a step that `metrics.jsonl` already has; None where there is nowhere to log to.
    """
    if not config.records.trackio:
        yield None
        return
    store = _Store(config, folder)
    try:
        yield store.log
    finally:
        store.finish()
    if not store.refused and not store.agrees() and store.write_again():
        store.finish()


class _Store:
    """What trackio keeps of one run."""

    def __init__(self, config: RunConfig, folder: RunFolder):
        self._folder = folder
        self._name = folder.path.resolve().name
        self._config = config.model_dump(mode="json") | {_START: folder.read_run().start_time}
        self._id = ""
        self._is_open = False
        self._row: dict[str, Any] = {}
        self.refused = False
        """Whether trackio could not be written to; nothing more is tried then."""

    def write_again(self) -> bool:
        """Replace the run's rows by those of `metrics.jsonl`, and stay open for more. False where trackio refuses."""
        import trackio

        try:
            with contextlib.suppress(ValueError):  # no run of the project yet
                for run in trackio.Api().runs(PROJECT):
                    if run.name == self._name and (run.config or {}).get(_START) == self._config[_START]:
                        run.delete()
        except (OSError, sqlite3.Error) as error:
            warnings.warn(f"not logged to trackio, whose store cannot be changed: {error}", stacklevel=2)
            self.refused = True
            return False
        with contextlib.redirect_stdout(io.StringIO()):
            self._id = trackio.init(
                project=PROJECT,
                name=self._name,
                config=self._config,
                resume="never",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            ).id
        self._is_open = True
        for row in self._folder.read_metrics():
            self._add({name: math.nan if value is None else value for name, value in row.items()}, row["step"])
        return True

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Hand over the metrics of a step, which `metrics.jsonl` already has; the first time all that it has.

        Only then a resumed run has dropped the steps after its checkpoint.
        """
        if self._is_open:
            self._add(metrics, step)
        elif not self.refused:
            self.write_again()

    def _add(self, metrics: Mapping[str, Any], step: int) -> None:
        """Keep a row until the next step: the evaluation of a step has a line of its own in `metrics.jsonl`."""
        if self._row and self._row["step"] != step:
            self._send()
        self._row |= {**metrics, "step": step}

    def _send(self) -> None:
        import trackio

        row, self._row = self._row, {}
        if row:
            trackio.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])

    def finish(self) -> None:
        """Wait until trackio has written what it was given."""
        if not self._is_open:
            return
        import trackio

        self._send()
        self._is_open = False
        with contextlib.redirect_stdout(io.StringIO()):
            trackio.finish()

    def agrees(self) -> bool:
        """Whether trackio has every step of `metrics.jsonl` once; True where that cannot be seen."""
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import get_storage_mode

        if get_storage_mode() != "sqlite":
            return True
        try:
            written = SQLiteStorage.get_logs(PROJECT, self._name, run_id=self._id)
        except (OSError, sqlite3.Error) as error:
            warnings.warn(f"trackio's store cannot be read: {error}", stacklevel=2)
            return True
        expected = {row["step"] for row in self._folder.read_metrics()}
        return sorted(row["step"] for row in written) == sorted(expected)
