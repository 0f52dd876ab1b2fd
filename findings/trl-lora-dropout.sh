#!/usr/bin/env bash
# TRL 1.16.0: with LoRA dropout the ratio of the very first update is not 1, and tokens are clipped.
# Expected: 1: the old log-probabilities belong to the same weights. Both passes are made in training mode, each with its own dropout.
# Source: `_generate_and_score_completions` and `disable_dropout` in trl/trainer/grpo_trainer.py
# gar: vectors come from a pass of their own without dropout (gar/integrations/trl/states.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import datasets
import torch
import trl
from peft import LoraConfig
from tiny import model, tokenizer
from trl import GRPOConfig, GRPOTrainer


def first_log(lora, **settings):
    arguments = GRPOConfig(
        output_dir="out", use_cpu=True, bf16=False, max_steps=1, logging_steps=1, report_to=[], save_strategy="no",
        per_device_train_batch_size=4, num_generations=4, max_completion_length=16, disable_tqdm=True,
        gradient_checkpointing=False, **settings,
    )
    trainer = GRPOTrainer(
        model=model(), args=arguments, peft_config=lora, processing_class=tokenizer(),
        train_dataset=datasets.Dataset.from_list([{"prompt": f"{i}+1="} for i in range(4)]),
        reward_funcs=lambda completions, **_: [float(i) for i in range(len(completions))],
    )
    trainer.train()
    return trainer.state.log_history[0]


clipped = [
    first_log(LoraConfig(r=4, target_modules="all-linear", lora_dropout=rate, init_lora_weights=False), num_iterations=2)[
        "clip_ratio/region_mean"
    ]
    for rate in (0.0, 0.3)
]
print(trl.__version__, "clipped share without dropout:", clipped[0], "with:", clipped[1])
assert clipped[0] == 0
assert clipped[1] > 0.02
PYTHON
