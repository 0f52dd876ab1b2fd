"""How many runs this machine trains at a time, and on which devices."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gar.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """The devices and processes of one `gar compare`.

    Attributes:
        devices: One entry per run at a time: its CUDA_VISIBLE_DEVICES, or None to leave the variable unchanged.
        threads: OMP_NUM_THREADS of every process.
        launcher: Words of the command that starts the ranks of a run; none for a run of one process.
    """

    devices: Sequence[str | None]
    threads: int = 1
    launcher: Sequence[str] = ()


def local_workers(*, number: int | None = None, gpus: int | None = None, threads: int = 1, launch: str = "") -> Workers:
    """The workers of this machine. GPUs are divided evenly, or shared if there are fewer GPUs than workers.

    Without a launcher a run is one process, which trains on one GPU (`check_ranks`).

    Args:
        number: Runs at a time. None is one with a launcher, else one per GPU, or one per core where there is no GPU.
        gpus: How many of the visible GPUs to use; None is all.
        threads: As in `Workers`.
        launch: The launcher as one text, in a shell's syntax.

    Raises:
        ConfigError: Fewer GPUs are visible, or the launcher is no command.
    """
    try:
        launcher = shlex.split(launch)
    except ValueError as error:
        raise ConfigError(f"--launch: {launch!r} is no command: {error}.") from error
    visible = _visible_gpus()
    if gpus is not None and gpus > len(visible):
        raise ConfigError(f"--gpus {gpus}: {len(visible)} are visible. CUDA_VISIBLE_DEVICES says which those are.")
    names = visible[:gpus]
    number = number or (1 if launcher else len(names) or _num_cores())
    size = len(names) // number if launcher else 1
    return Workers(devices=[_share(names, i, size) for i in range(number)], threads=threads, launcher=launcher)


def _share(names: Sequence[str], worker: int, size: int) -> str | None:
    """The GPUs of one worker; one that it shares with others if there are too few."""
    if not names:
        return None
    return ",".join(names[worker * size : (worker + 1) * size]) or names[worker % len(names)]


def _visible_gpus() -> list[str]:
    """The GPUs that a process sees, as CUDA_VISIBLE_DEVICES would name them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
