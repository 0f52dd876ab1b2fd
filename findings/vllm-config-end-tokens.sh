#!/usr/bin/env bash
# vLLM 0.31.0: with `generation_config="vllm"`, which turns the checkpoint's sampling settings off, responses still end at the end tokens of its file.
# Expected: only the tokenizer's end token ends a response.
# Source: `try_get_generation_config` in vllm/config/model.py, which reads the file for both "auto" and "vllm"
# gar: gives vLLM the end tokens itself, with ignore_eos (gar/integrations/trl/sampling.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import vllm
from vllm_tiny import POLICY, sample

ENDS = range(80)

if __name__ == "__main__":
    POLICY.generation_config.eos_token_id = [256, *ENDS]
    response = sample(generation_config="vllm", max_tokens=64)
    print(vllm.__version__, "tokens:", len(response.token_ids), response.finish_reason, response.stop_reason)
    assert response.token_ids[-1] in ENDS
    assert response.finish_reason == "stop"
PYTHON
