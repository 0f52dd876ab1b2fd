"""Run what README.md lists, small: two optimizer steps on a few problems.

    python -m paper.smoke [--work runs/smoke] [--only word-methods]

Every row of every comparison trains once, with its first seed, and every other command runs as it is. Prints minutes
of CPU time and how each ended. Run it again to go on: what has ended well is in WORK/done. SmolLM2 takes the place of
its warm starts (`scripts/fetch_smollm2.py`; its rows are skipped without it), the embedded model that of long-chains.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gar.comparison import planned_runs, read_comparison
from gar.models import embedded_path
from paper.tasks.__main__ import write_task
from paper.tasks.shorthand import FORMS, Form

ROOT = Path(__file__).parents[1]
SMALL = "--trl.max_steps 2 --evaluate.max_problems 2 --preflight.mode off"
SMALL_ROW = f"{SMALL} --trl.per_device_train_batch_size 16 --evaluate.num_samples 2 --evaluate.pass_at_k 1 2"
NEEDS = {"paper-qwen3": "a GPU", "Qwen/": "the Hub", ".jsonl": "real data", ".csv": "real data"}
NEEDS |= dict.fromkeys(("warm_start", "make_model", "tune_embedded_task"), "minutes")
"""A word of a command, and what it needs."""


def prepare() -> None:
    """Make the folder to run in: the code as links, stand-ins for models, short files of problems."""
    for folder in ("runs/models", "runs/warm"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    links = {name: ROOT / name for name in ("paper", "smollm2")} | {"runs/models/long-chains": embedded_path()}
    warm_starts = ("warm-start", "warm-start-steps", "warm-start-reduction", "warm/skipping-0.35-1600")
    links |= {f"runs/{name}": ROOT / "smollm2" for name in warm_starts}
    for name, target in links.items():
        if target.exists() and not Path(name).is_symlink():
            Path(name).symlink_to(target)
    tasks: list[tuple[str, str | None, Form | None]]
    tasks = [(task, None, form) for task in ("which-way", "arithmetic") for form in FORMS]
    tasks += [("which-way", None, None), ("whose-voice", None, None), ("long-chains", None, None)]
    tasks += [("word-problems", expert, None) for expert in (None, "shorthand", "reduction")]
    for task, expert, form in tasks:
        write_task(task, Path("runs/tasks") / "-".join(filter(None, (task, expert, form))), expert, form)
    for path in Path("runs/tasks").glob("*/*.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:32]))
    shutil.copy("runs/tasks/long-chains/train.jsonl", "runs/tasks/long-chains/guided.jsonl")


def commands() -> Iterator[str]:
    """The commands of README.md but for comparisons. `--method x` alone is the command before, with that method."""
    last = ""
    for span in re.findall(r"`([^`]+)`", (ROOT / "paper/README.md").read_text()):
        if span.startswith("--method "):
            span = re.sub(r"--method \S+", span, last)
        elif not span.startswith(("gar train", "gar report", "python -m paper.")):
            continue
        last = span
        name = " --records.name NAME --resume-if-exists" if span == "gar train --preset demo" else ""
        yield f"{span} {SMALL}{name}" if span.startswith("gar train") else span


def run_command(command: str) -> str:
    """Run one command to its end. What it printed last if it failed, else nothing."""
    program, *words = shlex.split(command)
    words = [sys.executable, *(["-m", "gar"] if program == "gar" else []), *words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600)
    return (done.stdout + done.stderr).strip()[-300:] if done.returncode else ""


def train_row(source: Path, label: str) -> str:
    """Train one row of a comparison with its first seed. As `run_command`."""
    cell = next(cell for cell in planned_runs(read_comparison(str(source)), str(source)) if cell.label == label)
    config = Path(f"{source.stem}-{label}.yaml")
    config.write_text(cell.config.model_dump_json())
    return run_command(
        f"gar train {config} {SMALL_ROW} --evaluate.eval_steps 0 --records.name {config.stem}-{os.getpid()}"
    )


def parts() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Each part: its name, what it needs and lacks, and what runs it and returns its error."""
    for command in commands():
        need = next((need for word, need in NEEDS.items() if word in command), "")
        yield command, need, partial(run_command, command)
    for source in sorted((ROOT / "paper/comparisons").glob("*.yaml")):
        need = "" if "word" not in source.stem or Path("smollm2").exists() else "smollm2"
        for row in read_comparison(str(source)).runs:
            yield f"{source.stem}, {row.label}", need, partial(train_row, source, row.label)


def main() -> None:
    """Run, print, and exit with 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/smoke"), help="the folder to run in")
    parser.add_argument("--only", default="", help="run only what holds this word")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    os.chdir(options.work)
    done = Path("done")
    if not done.exists():
        prepare()
        done.touch()
    failed = 0
    for name, need, run in parts():
        if options.only not in name or name in done.read_text().splitlines():
            continue
        before, error = sum(os.times()[:4]), "" if need else run()
        state = f"skipped, needs {need}" if need else f"FAILED: {error}" if error else "ok"
        print(f"{(sum(os.times()[:4]) - before) / 60:5.1f} min   {name}   {state}", flush=True)
        failed += bool(error)
        if state == "ok":
            done.write_text(f"{done.read_text()}{name}\n")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
