"""Run a function in several CPU processes that form a gloo group, and bring back what each of them found."""

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from gar.interrupts import end_with_parent
from tests.support.processes import SECONDS

FORKSERVER = multiprocessing.get_context("forkserver")
"""Its processes are forked from one that has imported everything, which takes longer than what they then do, and has
computed nothing: autograd's threads do not survive a fork."""
FORKSERVER.set_forkserver_preload(["tests.support.ranks", "pytest", "gar.core", "gar.train.run"])


def run_ranks(
    function: Callable[..., Any], world_size: int, folder: Path, *arguments: Any, start_method: str = "forkserver"
) -> list[Any]:
    """`function(*arguments)` on each rank, in new processes; the results in the order of ranks.

    The processes end with this one, on the first error on any rank, or after `SECONDS`. For a GPU they must be spawned:
    a fork of a process that has counted the GPUs cannot use one.
    """
    folder.mkdir(exist_ok=True)
    ranks = mp.start_processes(
        _work, (world_size, folder, function, arguments), nprocs=world_size, join=False, daemon=True,
        start_method=start_method,
    )  # fmt: skip
    deadline = time.monotonic() + SECONDS
    try:
        while not ranks.join(timeout=1.0):  # raises what a rank raised, and ends the others
            if time.monotonic() > deadline:
                raise TimeoutError(f"{world_size} ranks of {function.__name__} took over {SECONDS} s: is one waiting?")
    finally:
        for process in ranks.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


def join_group(rank: int, world_size: int, folder: Path) -> None:
    """Join the group of the ranks that share a folder, with the environment of a launcher.

    The process ends with the one that started it: a rank that waits for a dead test would keep its output open.
    """
    end_with_parent()
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    os.environ.update({name: str(value) for name, value in told.items()})
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)


def _work(rank: int, world_size: int, folder: Path, function: Callable[..., Any], arguments: tuple) -> None:
    torch.set_num_threads(1)
    join_group(rank, world_size, folder)
    try:
        torch.save(function(*arguments), folder / f"{rank}.pt")
    finally:
        if dist.is_initialized():  # the function may have closed it
            dist.destroy_process_group()
