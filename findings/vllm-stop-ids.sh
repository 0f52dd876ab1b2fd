#!/usr/bin/env bash
# vLLM 0.31.0: with `stop=`, the text of a response ends before the stop string, and its token ids after it.
# Expected: text and ids that say the same. Whoever grades the text and scores the ids reads two responses.
# Source: `include_stop_str_in_output` in vllm/sampling_params.py
# gar: gar decodes the ids itself, and reads no text of vLLM (gar/models/generate.py).
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

    written = sample(max_tokens=100, stop=["a", "b", "c", "d", "e"])
    ending = names.decode(written.token_ids)[-1]
    print(vllm.__version__, written.finish_reason, "ids end in", repr(ending), "text ends in", repr(written.text[-1:]))
    assert written.finish_reason == "stop" and ending == written.stop_reason
    assert not written.text.endswith(ending)

if __name__ == "__main__":
    main()
PYTHON
