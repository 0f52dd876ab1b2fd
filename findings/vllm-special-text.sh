#!/usr/bin/env bash
# vLLM 0.31.0: a special token such as `<think>` is in the ids of a response and not in its text.
# Expected: a text with all markers: formats are read from it.
# Source: `skip_special_tokens` in vllm/sampling_params.py
# gar: gar decodes the ids itself and keeps the tags of the format (gar/models/generate.py).
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

    think = names.convert_tokens_to_ids("<think>")
    written = sample(max_tokens=60, logit_bias={think: 4.0})
    print(vllm.__version__, "in the ids:", think in written.token_ids, "in the text:", "<think>" in written.text)
    assert think in written.token_ids
    assert "<think>" not in written.text

if __name__ == "__main__":
    main()
PYTHON
