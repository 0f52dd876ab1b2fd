#!/usr/bin/env bash
# vLLM 0.31.0: by default `logprobs` are those before the temperature, not those that were sampled from.
# Expected: log-probabilities at the temperature of the request.
# Source: `logprobs_mode` in vllm/config/model.py (raw_logprobs)
# gar: TRL asks for processed_logprobs, and the ratio of the preflight and of training shows it (gar/integrations/trl/sampling.py, tests/contracts/test_trl.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import torch
import vllm
from vllm_tiny import POLICY, PROMPT, sample

if __name__ == "__main__":
    written = sample(temperature=0.5, max_tokens=1, logprobs=0)
    token = written.token_ids[0]
    found = written.logprobs[0][token].logprob
    with torch.no_grad():
        logits = POLICY(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    at_one, at_half = (torch.log_softmax(logits / heat, dim=-1)[token].item() for heat in (1.0, 0.5))
    print(vllm.__version__, "vLLM", found, "temperature 1", at_one, "temperature 0.5", at_half)
    assert abs(found - at_one) < 1e-4 < abs(found - at_half)
PYTHON
