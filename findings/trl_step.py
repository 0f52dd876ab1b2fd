"""One step of TRL's GRPO on the tiny model, for the scripts beside."""

from typing import Any

import datasets
from tiny import model, tokenizer
from trl import GRPOConfig, GRPOTrainer


def index(completions: list[str], **_: Any) -> list[float]:
    """Rewards that differ: the place of a response in the batch."""
    return [float(place) for place in range(len(completions))]


def first_log(reward_funcs: Any = index, peft_config: Any = None, **settings: Any) -> dict[str, float]:
    """What TRL logs of the step. Four responses to one prompt. `settings` are fields of `GRPOConfig`."""
    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 16, "max_steps": 1}
    quiet = {"logging_steps": 1, "report_to": [], "save_strategy": "no", "disable_tqdm": True}
    plain = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
    trainer = GRPOTrainer(
        model=model(),
        args=GRPOConfig(output_dir="out", **(sizes | quiet | plain | settings)),
        peft_config=peft_config,
        processing_class=tokenizer(),
        train_dataset=datasets.Dataset.from_list([{"prompt": f"{i}+1="} for i in range(4)]),
        reward_funcs=reward_funcs,
    )
    trainer.train()
    return trainer.state.log_history[0]
