"""The commands that are tried: tiny, and with equal results each time."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gar.data.arithmetic import load_arithmetic

_TINY = {
    "evaluate": {"num_samples": 4, "max_problems": 4, "eval_steps": 3},
    "preflight": {"mode": "off"},
    "trl": {
        "max_steps": 6,
        "save_steps": 2,
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 32,
        "learning_rate": 1e-3,  # so large that a step more or less shows in what is sampled
        "lr_scheduler_type": "linear",  # a lost scheduler shows
    },
}
_RUN = "runs/run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One command, and the command that continues it after an interrupt.

    It runs in an empty folder with relative names, so that two folders can be compared. `prepare` writes its input.
    """

    name: str
    start: Sequence[str]
    go_on: Sequence[str]
    prepare: Callable[[Path], None] = lambda folder: None


def _train(name: str, *flags: str) -> Job:
    def prepare(folder: Path) -> None:
        (folder / "run.yaml").write_text(yaml.safe_dump(_TINY))

    records = ["--records.output_dir", "runs", "--records.name", "run"]
    sources = ["--evaluate.sources", "test", "harder"]
    return Job(
        name=name,
        start=["train", "run.yaml", *sources, *records, *flags],
        go_on=["train", "--resume", _RUN],
        prepare=prepare,
    )


def _write_responses(folder: Path) -> None:
    """Five problems with three responses each: the expert's, a worse one, and one without an answer."""
    rows = []
    for problem in load_arithmetic("test")[:5]:
        right = problem.anchors[0].text
        responses = [right, right.replace("<answer>", "<answer>1"), right[: len(right) // 2]]
        row = {"prompt": problem.prompt, "answer": problem.answer, "expert_solution": right, "responses": responses}
        rows.append(json.dumps(row) + "\n")
    (folder / "responses.jsonl").write_text("".join(rows))


def _write_comparison(folder: Path) -> None:
    base = _TINY | {"trl": _TINY["trl"] | {"max_steps": 2, "save_steps": 1}}
    base["evaluate"] = _TINY["evaluate"] | {"sources": ["test"], "pass_at_k": [1, 4], "eval_on_start": False}
    comparison = {"name": "tiny", "base": base, "runs": ["grpo", "gar-grpo"], "seeds": [0]}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(comparison))


def _again(name: str, prepare: Callable[[Path], None], *arguments: str) -> Job:
    """A command that continues when it is repeated."""
    return Job(name=name, start=arguments, go_on=arguments, prepare=prepare)


TRAIN = _train("train")
TRAIN_ONE = _train("train-keep-one", "--trl.save_total_limit", "1")
TRAIN_LORA = _train("train-lora", "--adapter.rank", "4")
TRAIN_GRADED = _train("train-graded", "--verify.verifier", "tests.faults.grader:grade")
_SCORE = ("score", "embedded", "responses.jsonl", "--window", "3", "--out")
SCORE = _again("score", _write_responses, *_SCORE, "scores.jsonl")
SCORE_PARQUET = _again("score-parquet", _write_responses, *_SCORE, "scores.parquet")
SCORE_OVERWRITE = _again("score-overwrite", _write_responses, *_SCORE, "scores.jsonl", "--overwrite")
EVAL = _again(
    "eval", lambda folder: None,
    *("eval", "run", "embedded", "--benchmark", "arithmetic,arithmetic-harder", "--limit", "4", "--samples", "3"),
    *("--batch-size", "4", "--max-new-tokens", "32", "--out", "evals"),
)  # fmt: skip
COMPARE = _again("compare", _write_comparison, "compare", "tiny.yaml", "--workers", "1")
REPORT = ["report", _RUN, "--out", "report.html"]
RUN = _RUN
SAMPLE = (TRAIN, SCORE, EVAL, COMPARE)
ALL = {
    job.name: job
    for job in (TRAIN, TRAIN_ONE, TRAIN_LORA, TRAIN_GRADED, SCORE, SCORE_PARQUET, SCORE_OVERWRITE, EVAL, COMPARE)
}
