#!/usr/bin/env bash
# vLLM 0.31.0: by default `logprobs` are those before the temperature, not those that were sampled from.
# Expected: log-probabilities at the temperature of the request.
# Source: `logprobs_mode` in vllm/config/model.py (raw_logprobs)
# gar: TRL asks for processed_logprobs, and the ratio of the preflight and of training shows it (gar/integrations/trl/sampling.py).
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

    written = sample(temperature=0.5, max_tokens=1, logprobs=0)
    token = written.token_ids[0]
    found = written.logprobs[0][token].logprob
    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([ids])).logits[0, -1]
    at_one, at_half = (torch.log_softmax(logits / heat, dim=-1)[token].item() for heat in (1.0, 0.5))
    print(vllm.__version__, "vLLM", found, "temperature 1", at_one, "temperature 0.5", at_half)
    assert abs(found - at_one) < 1e-4 < abs(found - at_half)

if __name__ == "__main__":
    main()
PYTHON
