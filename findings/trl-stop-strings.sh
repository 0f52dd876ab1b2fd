#!/usr/bin/env bash
# TRL 1.16.0: `generation_kwargs={"stop_strings": [...]}` ends in an error at the first rollout, since TRL passes no tokenizer to `generate`.
# Expected: responses that end there.
# Source: `_generate_single_turn` in trl/trainer/grpo_trainer.py
# gar: no fault of ours. End tokens (`eos_token_id`) do work.
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


try:
    first_log(None, generation_kwargs={"stop_strings": ["a"]})
except ValueError as error:
    print(trl.__version__, str(error)[:120])
    assert "tokenizer" in str(error)
else:
    raise SystemExit("stop strings work now")
PYTHON
