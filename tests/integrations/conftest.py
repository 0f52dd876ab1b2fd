from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig

from gar.data.arithmetic import load_arithmetic
from gar.integrations.trl.trainer import GARTrainer
from gar.models.embedded import load_embedded
from gar.records import RolloutRecord
from gar.types import Problem
from gar.verify import Verifier
from tests.integrations.graders import answers_an_even_digit

TrainerFactory = Callable[..., tuple[GARTrainer, list[RolloutRecord]]]

SMALL = {
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 48,
    "max_steps": 1,
    "learning_rate": 1e-3,
    "loss_type": "grpo",
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
}


@pytest.fixture(scope="session")
def verifier() -> Verifier:
    return Verifier(custom=answers_an_even_digit, num_workers=1)


@pytest.fixture
def make_trainer(tmp_path: Path, verifier: Verifier) -> TrainerFactory:
    """Makes a trainer on the embedded model and task, and the list of its rollout records."""

    def make(
        *,
        kind: Any = GARTrainer,
        problems: list[Problem] | None = None,
        args: dict[str, Any] | None = None,
        **options: Any,
    ) -> tuple[GARTrainer, list[RolloutRecord]]:
        model, tokenizer = load_embedded()
        records: list[RolloutRecord] = []
        arguments = {
            "model": model,
            "train_dataset": problems or load_arithmetic("train")[:64],
            "verifier": verifier,
            "args": GRPOConfig(output_dir=str(tmp_path / "out"), **(SMALL | (args or {}))),
            "processing_class": tokenizer,
            "on_rollouts": lambda step, rows: records.extend(rows),
        }
        return kind(**(arguments | options)), records

    return make
