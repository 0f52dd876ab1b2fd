"""One step of TRL's GRPO on the tiny model, for the scripts beside."""

from typing import Any

import datasets
from tiny import model, tokenizer
from trl import GRPOConfig, GRPOTrainer

TEMPLATE = """{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %}"""


def index(completions: list[str], **_: Any) -> list[float]:
    """Rewards that differ: the place of a response in the batch."""
    return [float(place) for place in range(len(completions))]


def first_log(
    reward_funcs: Any = index, peft_config: Any = None, policy: Any = None, prompt: Any = "3+4=", **settings: Any
) -> dict[str, float]:
    """What TRL logs of the step. Four responses to the prompt. `settings` are fields of `GRPOConfig`."""
    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 16, "max_steps": 1}
    quiet = {"logging_steps": 1, "report_to": [], "save_strategy": "no", "disable_tqdm": True}
    plain = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
    trainer = GRPOTrainer(
        model=policy or model(),
        args=GRPOConfig(output_dir="out", **(sizes | quiet | plain | settings)),
        peft_config=peft_config,
        processing_class=tokenizer(chat_template=TEMPLATE),
        train_dataset=datasets.Dataset.from_list([{"prompt": prompt}] * 4),
        reward_funcs=reward_funcs,
    )
    trainer.train()
    return trainer.state.log_history[0]
