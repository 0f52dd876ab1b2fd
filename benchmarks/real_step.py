"""Where a step of GRPO goes with a real model on one CPU thread.

    python benchmarks/real_step.py [--model smollm2] [--dtype float32] [--tokens 48] [--batches 32 8]

Prints CPU seconds per response: prefill of the prompts of word problems, decoding with sampling, and the update of an
adapter of rank 16, forward and backward.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from common import clock

from gar import ModelSettings
from gar.models import load_policy
from paper.tasks.word_problems import load_word_problems


def seconds(part: Callable[[], Any]) -> float:
    """CPU seconds of the second of two calls. The first takes memory for the first time."""
    part()
    start = clock("cpu")
    part()
    return clock("cpu") - start


def measure(model: Any, tokenizer: Any, batch: int, tokens: int) -> dict[str, float]:
    """CPU seconds per response of the parts of a step at one batch size."""
    texts = [problem.prompt for problem in load_word_problems("train")[:batch]]
    rows = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")

    def generate(number: int) -> Any:
        lengths = {"min_new_tokens": number, "max_new_tokens": number}
        with torch.no_grad():
            return model.generate(**rows, **lengths, do_sample=True, pad_token_id=0)

    ids = generate(tokens)
    mask = torch.cat([rows.attention_mask, torch.ones(batch, tokens, dtype=torch.long)], 1)

    def update() -> None:
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=tokens + 1).logits[:, :-1]
        torch.log_softmax(logits.float(), -1).gather(-1, ids[:, -tokens:, None]).mean().backward()

    prefill, whole = seconds(lambda: generate(1)), seconds(lambda: generate(tokens))
    parts = {"prefill": prefill, "decode": whole - prefill, "update": seconds(update)}
    return {name: value / batch for name, value in parts.items()}


def main() -> None:
    """Measure, print."""
    from peft import LoraConfig, get_peft_model  # an extra

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, default=48, help="of each response")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 8], help="responses at a time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_policy(ModelSettings(path=options.model, dtype=options.dtype))
    adapted = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    for batch in options.batches:
        parts = measure(adapted.get_base_model(), tokenizer, batch, options.tokens)
        shown = "   ".join(f"{name} {value:.3f}" for name, value in (parts | {"sum": sum(parts.values())}).items())
        print(f"{options.dtype}, {batch} at a time: {shown}", flush=True)


if __name__ == "__main__":
    main()
