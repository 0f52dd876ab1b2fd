#!/usr/bin/env bash
# transformers 5.23.0: `from_pretrained` without a dtype keeps the bfloat16 of a checkpoint, and TRL 1.16.0, given the same path, loads float32.
# Expected: float32 in both, as in transformers 4. AdamW at small rates moves bfloat16 weights hardly at all.
# Source: https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md (default dtype)
# gar: `gar train` loads float32 to train all weights. `GARTrainer` warns if weights do not move (gar/integrations/trl/weights.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import datasets
import transformers
from tiny import model, tokenizer
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

for part in (model().bfloat16(), tokenizer()):
    part.save_pretrained("checkpoint")
loaded = AutoModelForCausalLM.from_pretrained("checkpoint").dtype
trainer = GRPOTrainer(
    model="checkpoint", reward_funcs=lambda completions, **_: [0.0] * len(completions),
    args=GRPOConfig(output_dir="out", use_cpu=True, bf16=False, report_to=[], num_generations=4, per_device_train_batch_size=4),
    train_dataset=datasets.Dataset.from_list([{"prompt": "1+1="}]),
)
print(transformers.__version__, "from_pretrained:", loaded, "GRPOTrainer:", trainer.model.dtype)
assert str(loaded) == "torch.bfloat16"
assert str(trainer.model.dtype) == "torch.float32"
PYTHON
