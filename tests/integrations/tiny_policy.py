"""A tiny Qwen3 in a folder, as a TRL user has a model, and a trainer whose responses are planned."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig

from gar import GARTrainer
from gar.records import RolloutRecord
from tests.integrations.conftest import SMALL
from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ("<unk>", "<eos>", "<pad>", "3+4=", "2+5=", "add", "count", "on", "so", "\\boxed{7}", "\\boxed{8}", "seven")
ROWS = [
    {
        "prompt": [{"role": "user", "content": sum_}],
        "solution": "\\boxed{7}",
        "answer": "7",
        "expert_solution": solution,
    }
    for sum_, solution in itertools.product(("3+4=", "2+5="), ("add on so \\boxed{7}", "count on so \\boxed{7}"))
]
RESPONSES = ("add on so \\boxed{7}", "count so so \\boxed{7}", "add \\boxed{8}", "on on on")
"""Of each group, in order: right, right, wrong, without an answer."""


def save_policy(folder: Path) -> Path:
    """Model and tokenizer, with a chat template of contents alone."""
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    word_tokenizer(WORDS, chat_template=template).save_pretrained(folder)
    tiny_qwen3(WORDS, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
               num_key_value_heads=1).save_pretrained(folder)  # fmt: skip
    return folder


def planned_trainer(
    policy: Path, out: Path, *, responses: Sequence[str] = RESPONSES, args: dict[str, Any] | None = None, **options: Any
) -> tuple[GARTrainer, list[RolloutRecord]]:
    """A trainer on `ROWS` in groups of four, whose every group has the given responses, and its records."""
    records: list[RolloutRecord] = []
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12}
    trainer = GARTrainer(
        model=str(policy),
        args=GRPOConfig(str(out), **(SMALL | sizes | (args or {}))),
        on_rollouts=lambda step, rows: records.extend(rows),
        **{"train_dataset": Dataset.from_list(ROWS), **options},
    )
    tokenizer = trainer.processing_class
    ids = [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in responses]
    trainer._generate_single_turn = lambda prompts, *_, **__: ([ids[i % len(ids)] for i in range(len(prompts))], None)
    return trainer, records
