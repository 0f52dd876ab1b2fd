"""Shared by the benchmarks: the machine, clocks and peak memory, a process of its own, medians, tables, JSON."""

import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1]))  # for paper.analyses.cost


def machine() -> dict[str, Any]:
    """The machine and the versions that the numbers belong to."""
    return {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name(),
    }


def cpu_name() -> str:
    """The processor in its maker's words, and the vector instructions that torch uses."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def peak_memory(call: Callable[[], Any], device: str = "cpu") -> int | None:
    """Peak memory of a call in bytes, beyond what was in use before. None if the kernel does not report it."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    before = resident_bytes("VmRSS")
    if before is None:
        return None
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    call()
    return max(0, (resident_bytes("VmHWM") or 0) - before)


def resident_bytes(field: str) -> int | None:
    """VmRSS (memory now), VmHWM (its peak) or RssFile (pages of mapped files). None except on Linux."""
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), None)


def in_a_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function of a module, in a new process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def clock(device: str) -> float:
    """CPU seconds of this process. On a GPU seconds, once all that was started has ended."""
    if device != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(ratio: dict[str, float], form: str = ".2f") -> str:
    """A `spread` as text: the median, and the ends in brackets."""
    return f"{ratio['median']:{form}} ({ratio['min']:{form}} to {ratio['max']:{form}})"


def print_rows(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> None:
    """Print a table. The first column names the rows."""
    import pandas as pd  # here, as it would count in what is measured

    from gar.evaluation import print_tables

    print_tables({title: pd.DataFrame(rows, columns=[*headings])}, notes)


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write a result, and create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
