#!/usr/bin/env bash
# vLLM 0.31.0: a temperature below 0.01 is raised to 0.01, and the request does not fail.
# Expected: the temperature that was asked for.
# Source: `_MAX_TEMP` in vllm/sampling_params.py
# gar: such a temperature is an error where vLLM samples (gar/integrations/trl/rules.py, gar/evaluation/job.py; contract in tests/engines/vllm/test_vllm.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import vllm
from vllm import SamplingParams

found = [SamplingParams(temperature=asked).temperature for asked in (0.02, 1e-4, 0)]
print(vllm.__version__, found)
assert found == [0.02, 0.01, 0]
PYTHON
