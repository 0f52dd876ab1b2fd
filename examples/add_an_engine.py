"""GAR on an engine of your own: responses in, mean vectors in, rewards and advantages out.

    python examples/add_an_engine.py [--steps 30] [--method gar-grpo]

The engine is the loop of plain_pytorch_loop.py: its sampler, its loss. docs/which-engine.md explains `finished_step`.
"""

import argparse
import random

import torch
from plain_pytorch_loop import policy_gradient_loss, sample, take_step

from gar import Problem, Reader, ResponseGroup, VerifySettings
from gar.data import load_arithmetic
from gar.methods import Engine
from gar.models import find_parts, load_embedded
from gar.scoring import Shaping, Step, context_of, judge, plan_shaping, step_means
from gar.verify import Verifier

# What the engine can do. A method that needs anything else raises an error that names it.
LOOP = Engine(name="my loop", can=frozenset({"anchor", "compares_responses"}), estimators={"group": ()})


def finished_step(groups: list[ResponseGroup], model, reader: Reader, verifier: Verifier, plan: Shaping) -> Step:
    responses, problems = [], []  # each response with its tokens and its problem's anchors
    for number, group in enumerate(groups):
        anchors = reader.anchors(group.prompt, group.anchors)
        problem = Problem(id=group.id, prompt=reader.prompt_text(group.prompt), answer=group.answer)
        for ids in group.responses:
            responses.append(reader.read(group.prompt, ids, anchors=anchors, group_index=number))
            problems.append(problem)
    step = Step(plan, judge(verifier, responses, problems))  # it knows who needs a vector, and the engine computes it
    vectors, anchors = step_means(find_parts(model), step.sequences, step.anchors, plan.signal)
    step.finish(vectors, anchors)
    return step


def main(steps: int, method: str) -> None:
    """Train for this many steps of 8 problems with 8 responses each, and print the rewards."""
    torch.set_num_threads(1)
    model, tokenizer = load_embedded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    problems, rng = load_arithmetic("train"), random.Random(0)
    plan = plan_shaping(LOOP, method)  # a third argument takes sections of settings
    verify = VerifySettings()
    reader = Reader.from_settings(tokenizer, plan.signal, verify, context=context_of(model.config))
    with Verifier.from_settings(verify) as verifier:
        for step in range(1, steps + 1):
            groups = sample(model, tokenizer, rng.sample(problems, 8), seed=step)
            done = finished_step(groups, model, reader, verifier, plan)
            take_step(optimizer, policy_gradient_loss(model, groups, done.advantages().float()))
            correct, bonus = done.metrics()["gar/verified_fraction"], done.shaped.bonuses.mean()
            print(
                f"step {step:3}   reward {done.shaped.rewards.mean():6.3f}   correct {correct:5.1%}   bonus {bonus:.3f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="optimizer steps of 8 problems x 8 responses")
    parser.add_argument("--method", default="gar-grpo", help=f"one of {', '.join(LOOP.methods())}")
    main(**vars(parser.parse_args()))
