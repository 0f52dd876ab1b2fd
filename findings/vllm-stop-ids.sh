#!/usr/bin/env bash
# vLLM 0.31.0: with `stop=`, the text of a response ends before the stop string, and its token ids after it.
# Expected: text and ids that say the same. Whoever grades the text and scores the ids reads two responses.
# Source: `include_stop_str_in_output` in vllm/sampling_params.py
# gar: gar decodes the ids itself, and reads no text of vLLM (gar/models/generate.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
import vllm
from vllm_tiny import NAMES, sample

if __name__ == "__main__":
    written = sample(max_tokens=100, stop=["a", "b", "c", "d", "e"])
    ending = NAMES.decode(written.token_ids)[-1]
    print(vllm.__version__, written.finish_reason, "ids end in", repr(ending), "text ends in", repr(written.text[-1:]))
    assert written.finish_reason == "stop" and ending == written.stop_reason
    assert not written.text.endswith(ending)
PYTHON
