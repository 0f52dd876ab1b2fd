"""vLLM's build for CPUs with the tiny model, for the scripts beside."""

import os
from typing import Any

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ["TORCH_COMPILE_DISABLE"] = "1"
from tiny import model, tokenizer

NAMES = tokenizer(additional_special_tokens=["<think>"])
PROMPT = NAMES.encode("3+4=")
POLICY = model()


def sample(generation_config: str = "auto", **settings: Any) -> Any:
    """A response of vLLM to `PROMPT`. `settings` are fields of `SamplingParams`."""
    from vllm import LLM, SamplingParams

    for part in (POLICY, NAMES):
        part.save_pretrained("model")
    options = {"dtype": "float32", "max_model_len": 128, "enforce_eager": True, "seed": 0}
    engine = LLM("model", generation_config=generation_config, **options)
    prompt = {"prompt_token_ids": PROMPT}
    return engine.generate([prompt], SamplingParams(seed=1, **settings), use_tqdm=False)[0].outputs[0]
