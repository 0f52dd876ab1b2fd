#!/usr/bin/env bash
# TRL 1.16.0 with PEFT 0.21.2: with `init_lora_weights="pissa"` and beta > 0 the KL to the reference is not 0 at the first step.
# Expected: 0, since the policy begins as the base model. PiSSA moves a part of the base weights into the adapter, and the reference is the model without it.
# Source: https://huggingface.co/docs/peft/main/en/developer_guides/lora (PiSSA) and `ref_model` in trl/trainer/grpo_trainer.py
# gar: signal.policy initial copies the trained weights instead of disabling the adapter (gar/integrations/trl/weights.py).
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


plain, pissa = (
    first_log(LoraConfig(r=4, target_modules="all-linear", init_lora_weights=how), beta=0.1)["kl"]
    for how in (True, "pissa")
)
print(trl.__version__, "KL with zeros:", plain, "with PiSSA:", pissa)
assert plain == 0
assert pissa > 0.01
PYTHON
