"""The commands that are tried: tiny, and with equal results each time."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gar.data.arithmetic import load_arithmetic

_TINY = {
    "evaluate": {"sources": ["test"], "num_samples": 2, "max_problems": 2, "eval_steps": 3, "pass_at_k": [1, 2]},
    "preflight": {"mode": "off"},
    "trl": {
        "max_steps": 6,
        "save_steps": 2,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 24,
        "learning_rate": 1e-3,  # so large that a step more or less shows in what is sampled
        "lr_scheduler_type": "linear",  # a lost scheduler shows
    },
}
_RUN = "runs/run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One command, and the command that continues it after an interrupt.

    It runs in an empty folder with relative names, so that two folders can be compared. `prepare` writes its input, or
    it begins with what the job named `copies` wrote.
    """

    name: str
    start: Sequence[str]
    go_on: Sequence[str]
    prepare: Callable[[Path], None] = lambda folder: None
    copies: str = ""

    def begin(self, folder: Path) -> None:
        """Write the input."""
        if self.copies:
            shutil.copytree(folder.parent / f"{self.copies}-whole", folder, dirs_exist_ok=True)
        self.prepare(folder)


def _train(name: str, *flags: str) -> Job:
    def prepare(folder: Path) -> None:
        (folder / "run.yaml").write_text(yaml.safe_dump(_TINY))

    records = ["--records.output_dir", "runs", "--records.name", "run"]
    return Job(
        name=name,
        start=["train", "run.yaml", *records, *flags],
        go_on=["train", "--resume", _RUN],
        prepare=prepare,
    )


def _write_comparison(folder: Path) -> None:
    base = _TINY | {"trl": _TINY["trl"] | {"max_steps": 2, "save_steps": 1}}
    base["evaluate"] = _TINY["evaluate"] | {"eval_on_start": False}
    comparison = {"name": "tiny", "base": base, "runs": ["grpo", "gar-grpo"], "seeds": [0]}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(comparison))


def _again(name: str, begin: Callable[[Path], None] | str, *arguments: str) -> Job:
    """A command that continues when it is repeated. `begin` writes its input, or names a job that does."""
    prepared = {"copies": begin} if isinstance(begin, str) else {"prepare": begin}
    return Job(name=name, start=arguments, go_on=arguments, **prepared)


def _write_problems(folder: Path) -> None:
    rows = [
        {"prompt": problem.prompt, "answer": problem.answer, "expert_solution": problem.anchors[0].text}
        for problem in load_arithmetic("test")
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


TRAIN = _train("train")
TRAIN_RARE = _train("train-rare", "--trl.save_steps", "100")
TRAIN_ONE = _train("train-keep-one", "--trl.save_total_limit", "1")
TRAIN_LORA = _train("train-lora", "--adapter.rank", "4")
TRAIN_GRADED = _train("train-graded", "--verify.verifier", "tests.faults.grader:grade")
EVAL = _again(
    "eval", lambda folder: None,
    *("eval", "run", "embedded", "--benchmark", "arithmetic,arithmetic-harder", "--limit", "4", "--samples", "3"),
    *("--batch-size", "4", "--max-new-tokens", "32", "--out", "evals"),
)  # fmt: skip
COMPARE = _again("compare", _write_comparison, "compare", "tiny.yaml", "--workers", "1")
REPORT = _again("report", "train", "report", _RUN, "--out", "report.html")
TABLE = _again("table", "eval", "eval", "table", "evals")
RUN = _RUN


def read_model(folder: str) -> list[str]:
    """A command that loads final weights."""
    samples = ["--limit", "2", "--samples", "2", "--max-new-tokens", "8"]
    return ["eval", "run", f"{_RUN}/{folder}", "--benchmark", "arithmetic", *samples, "--out", "evals"]


def _pair(name: str, begin: Callable[[Path], None] | str, *arguments: str, first: str, second: str) -> tuple[Job, Job]:
    """Two commands that write one file, with different contents."""
    ones = [_again(f"{name}-{i}", begin, *arguments, *flags.split()) for i, flags in enumerate((first, second))]
    return ones[0], ones[1]


PAIRS = (
    _pair("prepare", _write_problems, *("data", "prepare", "problems.jsonl", "out.jsonl", "--num-problems"),
          first="100 --seed 1", second="60 --seed 2"),
    _pair("slime", _write_problems, "data", "slime", "problems.jsonl", "out.jsonl", first="", second="--no-chat"),
    _pair("verl", _write_problems, "data", "verl", "problems.jsonl", "out.parquet", "--template",
          first="think-answer", second="boxed"),
    _pair("page", "train", "report", _RUN, "--out", "report.html", "--max-rollouts", first="8", second="4"),
)  # fmt: skip
_JOBS = (*(TRAIN, TRAIN_RARE, TRAIN_ONE, TRAIN_LORA, TRAIN_GRADED, EVAL, COMPARE, REPORT, TABLE),)
ALL = {job.name: job for job in (*_JOBS, *(job for pair in PAIRS for job in pair))}
"""A job that begins with a copy comes after the one that it copies."""
