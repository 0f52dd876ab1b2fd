"""Run folders made by hand, and the embedded model, loaded once."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gar.analysis.policies import Policy, load_policy_of
from gar.config import parse_yaml
from gar.records import RolloutRecord, RunFolder
from gar.types import Status

WriteRun = Callable[..., RunFolder]


def rollout(step: int, group: int, index: int, **changes: object) -> RolloutRecord:
    values = dict(
        step=step, problem_id=f"train-{group}", group_index=group, response_index=index, prompt="3+4=",
        response="<think> ? = 7 </think> <answer> 7 </answer>", gold="7", answer="7", status=Status.OK, verified=True,
        well_formatted=True, eligible=True, anchor=True, alignment=0.25, bonus=0.0, penalty=0.0, reward=1.0,
        advantage=0.0, num_tokens=9, truncated=False, num_scored_tokens=3, signal_norm=0.5, prompt_tokens=4,
    )  # fmt: skip
    return RolloutRecord(**(values | changes))


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """A finished run with these rollouts."""

    def write(records: Sequence[RolloutRecord], *, status: str = "finished", config: str = "{}") -> RunFolder:
        folder = RunFolder.create(tmp_path, "run")
        folder.write_run(
            seed=0, command=["gar", "train"], config=parse_yaml(config), config_text=config, data_hash=None
        )
        if status != "running":
            folder.update_run(status=status)
        for step in sorted({record.step for record in records}):
            folder.write_rollouts(step, [record for record in records if record.step == step])
        return folder

    return write


@pytest.fixture(scope="session")
def embedded() -> Policy:
    return load_policy_of("embedded")
