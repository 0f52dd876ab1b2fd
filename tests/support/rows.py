"""Rows of rollouts, made up."""

from pathlib import Path

from gar.config import make_config
from gar.records import RolloutRecord, RunFolder
from gar.types import Status


def rollout(step: int = 1, group: int = 0, index: int = 0, **changes: object) -> RolloutRecord:
    """A right response, unless told otherwise."""
    values = dict(
        step=step, problem_id=f"train-{group}", group_index=group, response_index=index, prompt="3+4=",
        response="<think> ? = 7 </think> <answer> 7 </answer>", gold="7", answer="7", status=Status.OK, verified=True,
        well_formatted=True, eligible=True, anchor=True, alignment=0.25, bonus=0.0, penalty=0.0, reward=1.0,
        advantage=0.0, num_tokens=9, truncated=False, num_scored_tokens=3, signal_norm=0.5, prompt_tokens=4,
    )  # fmt: skip
    return RolloutRecord(**(values | changes))


def run_folder(path: Path, source: str = "arithmetic") -> RunFolder:
    """A run folder that holds its settings; made at the first call."""
    folder = RunFolder(path)
    if not (folder.path / "run.json").exists():
        config = make_config({"data": {"source": source}})
        values = config.model_dump(mode="json")
        folder.write_run(seed=0, command=["gar"], config=values, data_hash=None)
    return folder
