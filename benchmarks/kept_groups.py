"""The share of groups that filters keep: by unequal outcomes, and by GAR's signal. Responses of the embedded model.

    python benchmarks/kept_groups.py [--problems 200] [--sizes 8 16] [--temperatures 1.0 0.5]

Prints a row for each size of group and temperature.
"""

import argparse

from gar import SignalSettings
from gar.data import encode_prompt, load_arithmetic
from gar.integrations.trl import TRL
from gar.models import Sampling, generate_responses, load_embedded
from gar.scoring import Reader, judge, plan_shaping, signal_key
from gar.verify import Verifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[1.0, 0.5])
    options = parser.parse_args()
    model, tokenizer = load_embedded()
    problems = load_arithmetic("train")[: options.problems]
    prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
    plans = [plan_shaping(TRL, method, {}) for method in ("grpo", "gar-grpo")]
    print("| responses | temperature | kept by outcomes | kept by GAR's filter |\n|---|---|---|---|")
    with Verifier() as verifier:
        reader = Reader.from_settings(tokenizer, SignalSettings(), verifier)
        for size in options.sizes:
            for temperature in options.temperatures:
                sampling = Sampling(num_samples=size, temperature=temperature, max_new_tokens=64, seed=0)
                written = generate_responses(model, tokenizer, prompts, sampling)
                kept = [0, 0]
                for problem, prompt, group in zip(problems, prompts, written, strict=True):
                    read = [reader.read(prompt, each.ids) for each in group]
                    judged = judge(verifier, read, [problem] * size)
                    for i, plan in enumerate(plans):
                        kept[i] += len({signal_key(plan, each, has_anchor=True) for each in judged}) > 1
                shares = [f"{number / len(problems):.1%}" for number in kept]
                print(f"| {size} | {temperature:g} | {shares[0]} | {shares[1]} |", flush=True)


if __name__ == "__main__":
    main()
