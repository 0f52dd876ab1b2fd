"""Reinforcement learning in plain PyTorch with gradient-aligned rewards: sample, score, step.

    python examples/plain_pytorch_loop.py [--steps 30]

The embedded model learns digit arithmetic on one CPU thread, without a network, in about half a minute. The mean reward
rises from about 0.4 to more than 1.1: more answers become correct, and correct responses that resemble the expert
solution earn more. All of GAR is in `scorer.score`. The model, data, sampler and loss can be your own.
"""

import argparse
import os
import random
from statistics import mean
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gar import GARScorer, Problem, ResponseGroup
from gar.data import encode_prompt, load_arithmetic
from gar.models import Sampling, generate_responses, load_embedded
from gar.verify import Verifier


def sample(model: Any, tokenizer: Any, problems: list[Problem], *, seed: int) -> list[ResponseGroup]:
    """Eight responses to each problem, as the exact tokens that were sampled."""
    prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
    written = generate_responses(model, tokenizer, prompts, Sampling(num_samples=8, max_new_tokens=48, seed=seed))
    return [
        ResponseGroup(
            prompt=prompt,
            responses=[response.ids for response in responses],
            anchors=[anchor.text for anchor in problem.anchors],
            answer=problem.answer,
        )
        for problem, prompt, responses in zip(problems, prompts, written, strict=True)
    ]


def policy_gradient_loss(model: torch.nn.Module, groups: list[ResponseGroup], advantages: Tensor) -> Tensor:
    """Minus the log-probability of the response tokens, weighted by their advantages, averaged over tokens."""
    rows = [(group.prompt, response) for group in groups for response in group.responses]
    ids = pad_sequence([torch.tensor([*prompt, *response]) for prompt, response in rows], batch_first=True)
    columns = torch.arange(ids.shape[1])
    ends = torch.tensor([len(prompt) + len(response) for prompt, response in rows])[:, None]
    starts = torch.tensor([len(prompt) for prompt, _ in rows])[:, None]
    logits = model(input_ids=ids, attention_mask=(columns < ends).long()).logits
    log_probs = logits[:, :-1].log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    is_response = ((columns >= starts) & (columns < ends))[:, 1:]
    return -(advantages[:, None] * log_probs)[is_response].mean()


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One optimizer step, with gradients clipped to norm 1."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    optimizer.step()


def main(steps: int) -> None:
    """Train for this many steps of 8 problems with 8 responses each, and print the rewards."""
    torch.set_num_threads(1)  # the model is so small that a second thread costs more than it gives
    model, tokenizer = load_embedded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    problems, rng = load_arithmetic("train"), random.Random(0)
    with Verifier() as verifier:
        # One scorer serves the whole run: it reads the model's current weights.
        scorer = GARScorer(model, tokenizer, verifier=verifier)
        for step in range(1, steps + 1):
            groups = sample(model, tokenizer, rng.sample(problems, 8), seed=step)
            scores = scorer.score(groups)
            advantages = torch.tensor([score.advantage for score in scores])
            take_step(optimizer, policy_gradient_loss(model, groups, advantages))

            reward, correct = mean(score.reward for score in scores), mean(score.verified for score in scores)
            bonus = mean(score.bonus for score in scores)
            print(f"step {step:3}   reward {reward:6.3f}   correct {correct:5.1%}   bonus {bonus:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="optimizer steps of 8 problems x 8 responses")
    main(**vars(parser.parse_args()))
