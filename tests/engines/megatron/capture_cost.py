"""What `postprocess` passes through the model, by `capture`: tokens, and seconds in turns.

    PYTHONPATH=.venv-megatron:. OMP_NUM_THREADS=1 python -m tests.engines.megatron.capture_cost

Sampled responses of the embedded model, on Megatron's GPTModel with its weights; slime's side is the stand-in. The
numbers stand in docs/integrations/slime.md.
"""

import statistics
import tempfile
import time
import warnings
from typing import Any

import torch
import torch.distributed as dist

from tests.engines.rollouts import make_arguments, make_capturing

NUM_PROBLEMS, GROUP_SIZE, NUM_ROUNDS = 64, 8, 5


def samples(num_problems: int) -> list[Any]:
    """Eight responses to each problem, with its expert solution."""
    from gar.data.arithmetic import load_arithmetic
    from gar.models.embedded import load_embedded
    from gar.rollouts.generate import encode_prompt, generate_responses
    from tests.engines.slime_standin import Sample

    model, tokenizer = load_embedded()
    found = []
    problems = load_arithmetic("train")[:num_problems]
    prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
    answers = generate_responses(model, tokenizer, prompts, num_samples=GROUP_SIZE, max_new_tokens=48, seed=0)
    for group, (problem, prompt, responses) in enumerate(zip(problems, prompts, answers, strict=True)):
        for response in responses:
            found.append(
                Sample(
                    group_index=group, index=len(found), prompt=problem.prompt, label=problem.answer,
                    tokens=[*prompt, *response.ids], response=response.text, response_length=len(response.ids),
                    reward=0.0, metadata={"anchors": [anchor.text for anchor in problem.anchors]},
                )
            )  # fmt: skip
    return found


def measured(num_problems: int = NUM_PROBLEMS, num_rounds: int = NUM_ROUNDS) -> dict[str, dict[str, Any]]:
    """Tokens that pass, and seconds, for slime's own pass and for ours of either kind."""
    from megatron.core import mpu

    from gar.integrations.slime import convert_samples, on_megatron_init, postprocess
    from gar.models.embedded import embedded_path, load_embedded
    from tests.engines.megatron.policy import redirect_cuda
    from tests.engines.megatron.qwen3 import build_qwen3
    from tests.engines.slime_standin import compute_log_prob, install, split_by_data_parallel_rank

    model, tokenizer = load_embedded()
    redirect_cuda()
    install(tokenizer)
    mpu.initialize_model_parallel()
    on_megatron_init(make_arguments())
    policy = build_qwen3(model)
    tokens: list[int] = []
    policy.register_forward_pre_hook(lambda _, __, given: tokens.append(given["input_ids"].numel()), with_kwargs=True)
    flags = {"hf_checkpoint": str(embedded_path()), "vocab_size": 36, "max_tokens_per_gpu": 256}
    flags |= {"log_probs_max_tokens_per_gpu": 256}  # about what a pass of the stand-in holds
    arguments = {"own": make_arguments(gar={}, **flags), "logprob": make_capturing(**flags)}
    data = convert_samples(arguments["own"], samples(num_problems))
    found: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in ("slime's pass", *arguments)}

    def timed(name: str, work: Any, *given: Any) -> None:
        tokens.clear()
        start = time.perf_counter()
        work(*given)
        found[name]["seconds"].append(time.perf_counter() - start)
        found[name]["tokens"] = sum(tokens)

    for _ in range(num_rounds + 1):  # the first one warms up
        for name, args in arguments.items():
            share = split_by_data_parallel_rank(data, 1)[0]
            timed("slime's pass", compute_log_prob, args, [policy], share)
            timed(name, postprocess, args, 0, share)
            found[name]["rewards"] = share["rewards"]
            found[name]["scored"] = share["gar/scored_fraction"][0]
    return found


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        found = measured()
        dist.destroy_process_group()
    difference = torch.tensor(found["own"]["rewards"]) - torch.tensor(found["logprob"]["rewards"])
    print(f"{NUM_PROBLEMS * GROUP_SIZE} responses, {found['own']['scored']:.0%} scored")
    print(f"largest difference of a normalized reward: {float(difference.abs().max()):.1e}")
    for name, each in found.items():
        seconds = each["seconds"][2:] if name == "slime's pass" else each["seconds"][1:]
        print(f"{name:14} {each['tokens']:7,} tokens   {statistics.median(seconds):.3f} s")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
