#!/usr/bin/env bash
# TRL 1.16.0 with vLLM 0.31.0: with top_p 0.9 the gradient of four responses of up to 64 tokens is 24 times smaller.
# Expected: about the gradient of top_p 1. vLLM's probabilities are of the nucleus, TRL's of all tokens, so each token multiplies the weight of a response by about 0.9.
# Source: `vllm_importance_sampling_mode` in trl/trainer/grpo_config.py, by default a product over a response
# gar: an error, unless trl.vllm_importance_sampling_mode weighs single tokens (gar/integrations/trl/rules.py).
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/vllm.txt" <<'PYTHON'
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import torch
import trl
import vllm
import vllm_tiny
from transformers import AutoModelForCausalLM
from trl_step import first_log


def step(top_p):
    from trl.generation import vllm_generation
    from vllm.model_executor.layers import utils

    def plain(layer, remove_weight):
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain  # the build for CPUs drops weights that TRL replaces
    vllm_generation.LLM = partial(vllm_generation.LLM, dtype="float32")
    for part in (vllm_tiny.POLICY, vllm_tiny.NAMES):
        part.save_pretrained("model")
    sizes = {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": 128, "max_completion_length": 64}
    return first_log(policy=AutoModelForCausalLM.from_pretrained("model"), top_p=top_p, **sizes)


if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        whole, nucleus = processes.map(step, (1.0, 0.9))
    ratio = "sampling/importance_sampling_ratio/mean"
    print(trl.__version__, vllm.__version__, "norm of the gradient:", whole["grad_norm"], nucleus["grad_norm"])
    print("mean weight of a response:", whole[ratio], nucleus[ratio])
    assert abs(whole[ratio] - 1) < 1e-3
    assert nucleus[ratio] < 0.2
    assert whole["grad_norm"] / nucleus["grad_norm"] > 10
PYTHON
