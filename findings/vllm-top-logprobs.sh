#!/usr/bin/env bash
# vLLM 0.31.0: with `logprobs=5` a position has 5 or 6 entries: the sampled token is added if it is not among the five.
# Expected: 5, a tensor of equal rows.
# Source: `logprobs` in vllm/sampling_params.py
# gar: asks for the sampled token alone (gar/integrations/trl/sampling.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import os

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ["TORCH_COMPILE_DISABLE"] = "1"
import torch
import vllm
from tiny import model, tokenizer
from vllm import LLM, SamplingParams


def main():
    policy, names = model(), tokenizer(additional_special_tokens=["<think>"])
    for part in (policy, names):
        part.save_pretrained("model")
    engine = LLM("model", dtype="float32", max_model_len=128, enforce_eager=True, seed=0)
    ids = names.encode("3+4=")

    def sample(**settings):
        prompt = {"prompt_token_ids": ids}
        return engine.generate([prompt], SamplingParams(seed=1, **settings), use_tqdm=False)[0].outputs[0]

    counts = {len(position) for position in sample(max_tokens=40, logprobs=5).logprobs}
    print(vllm.__version__, "entries:", sorted(counts))
    assert counts == {5, 6}

if __name__ == "__main__":
    main()
PYTHON
