"""Inject faults into commands, and check that nothing is lost: prints a table, exits with 1 if anything is wrong.

python -m tests.faults                      everything
python -m tests.faults --kind "kill train"  one kind
python -m tests.faults --kind "kill train" --name "kill 57" --keep
                                            one try; its folder is kept
python -m tests.faults --sample             one try of some kinds
"""

import argparse
import gc
import os
import platform
import shlex
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path

from tests.faults.preload import preload

if __name__ == "__main__":
    preload()  # starts this program again, before the long imports
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

# Imported here, so that no fork has to.
import matplotlib.backends.backend_agg
import matplotlib.backends.backend_svg  # noqa: F401  every fork draws with it
import peft  # noqa: F401  every fork loads it
import PIL.Image
import torch
import transformers.models.qwen3.modeling_qwen3  # noqa: F401  every fork loads a model of it
import typeguard  # noqa: F401  every fork imports it
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import gar.analysis.curves
import gar.analysis.summary
import gar.cli.eval
import gar.comparison.compare
import gar.evaluation.generate
import gar.evaluation.grade
import gar.report.build
import gar.train.run  # noqa: F401  every fork of training runs it
from gar.data.arithmetic import load_arithmetic
from tests.faults import jobs
from tests.faults.lab import Lab, Try, Verdict, run_whole, verdicts
from tests.faults.plan import PLAN, tries

SAMPLE = ("kill train", "damage, then resume", "kill eval", "kill compare")
"""Kinds of which `make test-slow` does the middle try."""


def main() -> int:
    """Returns 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=list(PLAN), help="only this kind; may be repeated")
    parser.add_argument("--name", help="only the try of this name")
    parser.add_argument("--sample", action="store_true", help="the middle try of some kinds")
    parser.add_argument("--thin", type=int, default=1, help="only one try in so many of each kind")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    parser.add_argument("--lanes", type=int, default=len(os.sched_getaffinity(0)), help="tries side by side")
    parser.add_argument("--reference", nargs="+", metavar="FOLDER JOB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["COLUMNS"] = "120"
    torch.set_num_threads(1)
    PIL.Image.init()
    load_arithmetic("test")  # made once, and kept, as are these patterns
    get_checkpoint_conversion_mapping("qwen3")
    if options.reference:
        folder, *names = options.reference
        for name in names:
            run_whole(jobs.ALL[name], Path(folder, f"{name}-whole"), record=Path(folder, f"{name}.operations"))
        return 0
    gc.freeze()  # no fork looks through what is here already
    start = time.monotonic()
    lab = Lab()
    ended: list[tuple[Try, Verdict]] = []
    try:
        if not (options.kind or options.sample):
            lab.refer_to(jobs.ALL.values())
        for kind in options.kind or (SAMPLE if options.sample else PLAN):
            chosen = [attempt for attempt in tries(kind, lab) if options.name in (None, attempt.name)]
            every = len(chosen) if options.sample else options.thin
            print(f"{kind}: {len(chosen)} tries, one of {every}", flush=True)
            chosen = chosen[(every - 1) // 2 :: every]
            lab.prepare(chosen)
            for attempt, verdict in verdicts(lab, chosen, lanes=options.lanes, keep=options.keep):
                ended.append((attempt, verdict))
                if verdict.outcome == "wrong":
                    again = shlex.join(["--kind", kind, "--name", attempt.name])
                    print(f"wrong: python -m tests.faults {again}\n    {verdict.reason[:500]}", flush=True)
            print(_row(kind, ended), flush=True)
    finally:
        if options.keep:
            print(f"Folders in {lab.path}")
        else:
            lab.close()
        gc.unfreeze()
    _print(ended, time.monotonic() - start)
    return int(any(verdict.outcome == "wrong" for _, verdict in ended))


def _row(kind: str, ended: list[tuple[Try, Verdict]]) -> str:
    here = [verdict for attempt, verdict in ended if kind in ("all", attempt.kind)]
    counts = Counter(verdict.outcome for verdict in here)
    minutes = sum(verdict.cpu_seconds for verdict in here) / 60
    return f"| {kind} | {len(here)} | {counts['equal']} | {counts['rejected']} | {counts['wrong']} | {minutes:.1f} |"


def _print(ended: list[tuple[Try, Verdict]], seconds: float) -> None:
    """Print the sentences of rejected tries, then the table."""
    print("\nRejected:")
    for attempt, verdict in ended:
        if verdict.outcome == "rejected":
            print(f"  {attempt.kind}: {verdict.reason}")
    print("\n| kind | tries | equal | rejected | wrong | CPU minutes |\n|---|---|---|---|---|---|")
    for kind in dict.fromkeys(attempt.kind for attempt, _ in ended):
        print(_row(kind, ended))
    print(_row("all", ended))
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, timeout=600).stdout.strip()
    print(f"\nThe table is of commit {commit}, {date.today()}, on {platform.system()}. {seconds / 60:.1f} minutes.")


if __name__ == "__main__":
    sys.exit(main())
