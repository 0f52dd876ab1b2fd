#!/usr/bin/env bash
# vLLM 0.31.0: a special token such as `<think>` is in the ids of a response and not in its text.
# Expected: a text with all markers: formats are read from it.
# Source: `skip_special_tokens` in vllm/sampling_params.py
# gar: gar decodes the ids itself and keeps the tags of the format (gar/models/generate.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import vllm
from vllm_tiny import NAMES, sample

if __name__ == "__main__":
    think = NAMES.convert_tokens_to_ids("<think>")
    written = sample(max_tokens=60, logit_bias={think: 4.0})
    print(vllm.__version__, "in the ids:", think in written.token_ids, "in the text:", "<think>" in written.text)
    assert think in written.token_ids
    assert "<think>" not in written.text
PYTHON
