#!/usr/bin/env bash
# vLLM 0.31.0: with `logprobs=5` a position has 5 or 6 entries: the sampled token is added if it is not among the five.
# Expected: 5, a tensor of equal rows.
# Source: `logprobs` in vllm/sampling_params.py
# gar: asks for the sampled token alone (gar/integrations/trl/sampling.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import vllm
from vllm_tiny import sample

if __name__ == "__main__":
    counts = {len(position) for position in sample(max_tokens=40, logprobs=5).logprobs}
    print(vllm.__version__, "entries:", sorted(counts))
    assert counts == {5, 6}
PYTHON
