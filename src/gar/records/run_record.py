"""`run.json`: how a run came about, on which machine, and how it ended."""

import platform
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gar.extras import installed_version

RunStatus = Literal["running", "finished", "failed", "interrupted"]

_PACKAGES = ("gar-rl", "torch", "transformers", "trl", "numpy")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """The content of `run.json`: how a run came about and how it ended.

    Times are UTC in ISO 8601. `config_hash` is `canonical_hash` of the resolved configuration, which is in `settings`.
    `data_hash` comes from the caller. The version of a package that is not installed is None. `summary` holds the
    results of a finished run. `overrides` has an entry for each resume with changes: its time, the step, the changes,
    and the hash of the settings before them. `error` is the cause of an early end: `kind`, `text` and `place` in the
    code.
    """

    status: RunStatus
    start_time: str
    resume_times: Sequence[str] = ()
    end_time: str | None = None
    seed: int
    command: str
    config_hash: str
    data_hash: str | None
    versions: Mapping[str, str | None]
    platform: str
    cpu_count: int | None
    summary: Mapping[str, Any]
    settings: Mapping[str, Any]
    overrides: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, Any] | None = None


def error_record(error: BaseException) -> dict[str, Any]:
    """The entry of `RunRecord.error` for an error that was raised. Its place is the last line in gar, and of all."""
    places = [
        f"{frame.f_globals.get('__name__')}:{line} in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    in_gar = [place for place in places if place.startswith("gar.")]
    kind = type(error).__name__
    text = f"{kind}: {error}" if str(error) else kind
    return {"kind": kind, "text": text, "place": ", ".join(dict.fromkeys((*in_gar[-1:], *places[-1:])))}


def package_versions() -> dict[str, str | None]:
    """Python and the packages that decide a run's numbers, with their versions. None for one not installed."""
    return {"python": platform.python_version()} | {name: installed_version(name) for name in _PACKAGES}
