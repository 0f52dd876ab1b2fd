"""CPU seconds and peak memory from a data set to the first step, beside `GRPOTrainer`'s.

    python benchmarks/data.py [--sizes 10000 100000 1000000] [--cases grpo init train ...] [--words 60 250]
        [--kind jsonl]

Generates problems with a prompt and an expert solution of `--words` words, and measures each case in a process of its
own, with the embedded model:

    grpo     GRPOTrainer(train_dataset=a memory-mapped data set), its __init__ alone
    init     GARTrainer(...), the same
    train    `gar train` on a .jsonl: until its first step begins, and the whole process of one step
    ranks    the same on two ranks, each process by itself
    resume   `gar train --resume` of the run of `train` after its last step
    check    `gar data check` of a source of that kind, with the CPU seconds of the verifier's workers
    prepare  `gar data prepare`, 1,000 problems

Memory is the peak of the resident set, which counts pages of mapped files, for `grpo` and `init` beyond what was in
use before, with the part that are such pages, which the kernel can take back. Writes results/data-cpu.json.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import random
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES, WORDS = [10_000, 100_000, 1_000_000], [60, 250]
SETTINGS = {
    "data.template": "plain", "evaluate.eval_on_start": False, "evaluate.max_problems": 2, "evaluate.num_samples": 1,
    "evaluate.pass_at_k": 1, "preflight.mode": "off", "trl.max_steps": 1, "trl.use_cpu": True, "trl.bf16": False,
    "trl.per_device_train_batch_size": 16, "trl.num_generations": 8, "trl.max_completion_length": 16,
    "trl.save_steps": 1, "trl.gradient_checkpointing": False, "records.name": "run",
}  # fmt: skip
TRAIN = [part for name, value in SETTINGS.items() for part in (f"--{name}", str(value).lower())]


def write_data(folder: Path, size: int, words: list[int]) -> None:
    """`problems.jsonl`, and the same in Arrow, as `datasets` maps it into memory. The same on every machine."""
    import pyarrow as pa

    rng = random.Random(0)
    known = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 10))) for _ in range(4096)]
    pool = known * 2  # a text is a run of words

    def text(number: int) -> str:
        start = rng.randrange(4096)
        return " ".join(pool[start : start + max(1, number + rng.randrange(-number // 4, number // 4 + 1))])

    def row(i: int) -> dict[str, str]:
        prompt, solution = f"{i} {text(words[0])} =", f"{text(words[1])} \\boxed{{{i % 10}}}"
        return {"id": f"p-{i}", "prompt": prompt, "answer": str(i % 10), "expert_solution": solution}

    schema = pa.schema([(name, pa.string()) for name in ("id", "prompt", "answer", "expert_solution")])
    with (
        (folder / "problems.jsonl").open("w") as file,
        pa.ipc.new_stream(folder / "problems.arrow", schema) as table,
    ):
        for start in range(0, size, 1000):
            batch = [row(i) for i in range(start, min(start + 1000, size))]
            file.writelines(json.dumps(each) + "\n" for each in batch)
            table.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))


def write_kind(folder: Path, kind: str) -> None:
    """`problems.arrow` as another kind of source. `folder` is one of four Parquet files."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    with pa.ipc.open_stream(folder / "problems.arrow") as stream:
        table = stream.read_all()
    if kind == "csv":
        csv.write_csv(table, folder / "problems.csv")
    elif kind == "json":
        (folder / "problems.json").write_text(json.dumps(table.to_pylist()))
    elif kind == "parquet":
        parquet.write_table(table, folder / "problems.parquet")
    else:
        size = -(-len(table) // 4)
        (folder / "problems.folder").mkdir()
        for i in range(4):
            parquet.write_table(table.slice(i * size, size), folder / "problems.folder" / f"train-{i}.parquet")


def peak_bytes() -> int:
    """Of this process. `ru_maxrss` begins with the peak of its parent, and `common` would import torch."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def trainer_case(name: str, folder: Path) -> dict[str, float]:
    """CPU seconds and memory of making a trainer."""
    from common import resident_bytes
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from gar.integrations.trl import GARTrainer
    from gar.models import load_embedded

    model, tokenizer = load_embedded()
    tokenizer.padding_side = "left"
    args = GRPOConfig(
        str(folder / name), use_cpu=True, bf16=False, per_device_train_batch_size=16, num_generations=8,
        max_completion_length=16, max_steps=1, report_to="none",
    )  # fmt: skip
    # Once on a few rows, so that what is imported late does not count.
    few = Dataset.from_dict(Dataset.from_file(str(folder / "problems.arrow"))[:64])

    def make(rows: Any) -> Any:
        arguments: dict[str, Any] = dict(model=model, args=args, train_dataset=rows, processing_class=tokenizer)
        if name == "init":
            return GARTrainer(**arguments)
        return GRPOTrainer(reward_funcs=lambda completions, **_: [0.0] * len(completions), **arguments)

    make(few)
    rows = Dataset.from_file(str(folder / "problems.arrow"))
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, mapped = resident_bytes("VmRSS") or 0, resident_bytes("RssFile") or 0
    start = time.process_time()
    make(rows)
    return {
        "cpu_seconds": time.process_time() - start,
        "peak_bytes": (resident_bytes("VmHWM") or 0) - before,
        "mapped_bytes": (resident_bytes("RssFile") or 0) - mapped,
    }


def note_first_step() -> dict[str, float]:
    """Will hold the CPU seconds of this process until its first step of training."""
    noted: dict[str, float] = {}
    freeze = gc.freeze

    def watch_steps() -> None:
        """`gar train` calls it when it has imported the libraries."""
        from transformers import Trainer

        step = Trainer.training_step

        def training_step(*args: Any, **options: Any) -> Any:
            noted.setdefault("first_step_seconds", time.process_time())
            return step(*args, **options)

        Trainer.training_step = training_step
        freeze()

    gc.freeze = watch_steps
    return noted


def command_case(arguments: list[str]) -> dict[str, float]:
    """CPU seconds and peak memory of a command of gar, in this process, and the seconds of those that it started."""
    sys.argv = ["gar", *arguments]
    noted = note_first_step() if arguments[0] == "train" else {}
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_module("gar", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "cpu_seconds": own.ru_utime + own.ru_stime,
        "worker_seconds": workers.ru_utime + workers.ru_stime,
        "elapsed_seconds": time.perf_counter() - start,
        "peak_bytes": peak_bytes(),
        **noted,
    }


def command_of(case: str, folder: Path, kind: str) -> list[str]:
    source, runs = str(folder / f"problems.{kind}"), folder / f"runs-{'ranks' if case == 'ranks' else 'train'}"
    if case == "resume":
        from gar.records import RunFolder

        RunFolder.open(runs / "run").update_run(status="interrupted")
        return ["train", "--resume", str(runs / "run")]
    return {
        "train": ["train", *TRAIN, "--data.source", source, "--records.output_dir", str(runs)],
        "ranks": ["train", *TRAIN, "--data.source", source, "--records.output_dir", str(runs)],
        "check": ["data", "check", source],
        "prepare": ["data", "prepare", source, str(folder / "drawn.jsonl"), "--num-problems", "1000", "--overwrite"],
    }[case]


def measured(case: str, folder: Path, kind: str) -> list[dict[str, float]]:
    """The figures of a case: one for each process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    launch = [sys.executable]
    if case == "ranks":
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for old in folder.glob("usage-*.json"):
        old.unlink()
    if case in ("train", "ranks"):
        shutil.rmtree(folder / f"runs-{case}", ignore_errors=True)
    command = [*launch, __file__, "--inside", case, str(folder), kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return [json.loads(path.read_text()) for path in sorted(folder.glob("usage-*.json"))]


def in_words(figures: dict[str, float]) -> str:
    workers = f" and {seconds:.2f} s in workers" if (seconds := figures.get("worker_seconds", 0)) >= 1 else ""
    mapped = f", {figures['mapped_bytes'] / 2**20:,.0f} of it mapped" if "mapped_bytes" in figures else ""
    before = f"{seconds:.2f} s to the first step, " if (seconds := figures.get("first_step_seconds")) else ""
    return f"{before}{figures['cpu_seconds']:.2f} s{workers} {figures['peak_bytes'] / 2**20:,.0f} MiB{mapped}"


def inside(case: str, folder: Path, kind: str) -> None:
    """Run a case in this process, and leave its figures in the folder."""
    work: Callable[[], dict[str, float]] = (
        (lambda: trainer_case(case, folder))
        if case in ("grpo", "init")
        else (lambda: command_case(command_of(case, folder, kind)))
    )
    figures = work()
    (folder / f"usage-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(figures))


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        return inside(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--words", type=int, nargs=2, default=WORDS)
    parser.add_argument("--cases", nargs="+", default=["grpo", "init", "train", "ranks", "check", "prepare"])
    parser.add_argument("--kind", choices=["jsonl", "json", "csv", "parquet", "folder"], default="jsonl")
    parser.add_argument("--folder", type=Path, help="keeps the data for the next time")
    parser.add_argument("--out", type=Path, default=Path("results/data-cpu.json"))
    arguments = parser.parse_args()
    from common import machine, write_json

    results: dict[str, Any] = {}
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as temporary:
            folder = arguments.folder or Path(temporary)
            folder = folder / f"{size}-{'-'.join(map(str, arguments.words))}"
            if not (folder / "problems.arrow").exists():
                folder.mkdir(parents=True, exist_ok=True)
                write_data(folder, size, arguments.words)
            if not (folder / f"problems.{arguments.kind}").exists():
                write_kind(folder, arguments.kind)
            for case in arguments.cases:
                kind = arguments.kind if case in ("check", "prepare") else "jsonl"
                figures = measured(case, folder, kind)
                results.setdefault(case, {})[str(size)] = figures
                shown = ", ".join(map(in_words, figures))
                print(f"{size:>9,} {case:8} {shown}", flush=True)
    write_json(
        arguments.out, {"words": arguments.words, "kind": arguments.kind, "results": results, "machine": machine()}
    )


if __name__ == "__main__":
    main()
