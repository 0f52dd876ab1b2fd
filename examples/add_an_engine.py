"""GAR on an engine of your own: rows in, mean vectors in, rewards and advantages out.

    python examples/add_an_engine.py [--steps 30] [--method gar-grpo]

The engine is a loop in plain PyTorch: the embedded model on one CPU thread, without a network, for about half a
minute. The mean reward of gar-grpo rises from about 0.4 to more than 1.1. docs/add-an-engine.md goes through it.
"""

import argparse
import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gar.data.arithmetic import load_arithmetic
from gar.methods import Engine
from gar.models.embedded import load_embedded
from gar.models.families import find_parts
from gar.rollouts.generate import encode_prompt, generate_responses
from gar.scoring import signal_means
from gar.settings import VerifySettings
from gar.shaping import RewardTable, VectorPlan, plan_shaping, read_row
from gar.spans import SequenceReader, TokenSequence, context_of
from gar.verify import Verifier

# What the engine can do. Methods that need anything else are refused with a sentence that says what.
LOOP = Engine(
    name="my loop",
    can=frozenset({"anchor", "compares_responses"}),
    estimators={"group": (), "reinforce-pp": (), "reinforce-pp-baseline": ()},
)


def policy_gradient_loss(model: torch.nn.Module, sequences: list[TokenSequence], advantages: Tensor) -> Tensor:
    """Minus the log-probability of the response tokens, weighted by their advantages, averaged over tokens."""
    ids = pad_sequence([torch.tensor([*row.context_ids, *row.ids]) for row in sequences], batch_first=True)
    columns = torch.arange(ids.shape[1])
    starts = torch.tensor([len(row.context_ids) for row in sequences])[:, None]
    ends = starts + torch.tensor([len(row.ids) for row in sequences])[:, None]
    logits = model(input_ids=ids, attention_mask=(columns < ends).long()).logits
    log_probs = logits[:, :-1].log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    is_response = ((columns >= starts) & (columns < ends))[:, 1:]
    return -(advantages[:, None] * log_probs)[is_response].mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="optimiser steps of 8 problems x 8 responses")
    parser.add_argument("--method", default="gar-grpo", help=f"one of {', '.join(LOOP.methods())}")
    options = parser.parse_args()
    torch.set_num_threads(1)

    model, tokenizer = load_embedded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    problems, rng = load_arithmetic("train"), random.Random(0)

    shaping = plan_shaping(LOOP, options.method)  # a third argument takes sections of settings
    reader = SequenceReader.from_settings(tokenizer, shaping.signal, VerifySettings(), context=context_of(model.config))
    with Verifier() as verifier:
        for step in range(1, options.steps + 1):
            batch = rng.sample(problems, 8)
            prompts = [encode_prompt(tokenizer, problem.prompt) for problem in batch]
            written = generate_responses(model, tokenizer, prompts, num_samples=8, max_new_tokens=48, seed=step)

            # 1. Rows: each response with its verdict, its tokens, and the anchors of its problem.
            rows = []
            for group, (problem, prompt, responses) in enumerate(zip(batch, prompts, written, strict=True)):
                anchors = reader.anchors(prompt, [anchor.text for anchor in problem.anchors])
                sequences = [reader.response(prompt, response.ids) for response in responses]
                texts = [reader.text(sequence.ids) for sequence in sequences]
                prefilled = [reader.prefilled(prompt)] * len(texts)
                verdicts = verifier.verify(texts, [problem.answer] * len(texts), prefilled_think=prefilled)
                for verdict, sequence in zip(verdicts, sequences, strict=True):
                    rows.append(read_row(reader, verdict, sequence, anchors, group_index=group))

            # 2. Who needs a vector? The engine brings the mean vectors of these sequences, and nothing else.
            table = RewardTable(shaping, [row.facts for row in rows])
            plan = VectorPlan(rows, table.needed, anchor_keep_fraction=shaping.signal.anchor_keep_fraction)
            means = signal_means(find_parts(model), plan.sequences, shaping.signal, keep_fractions=plan.keep_fractions)

            # 3. Rewards, advantages, metrics.
            aligned = plan.align(means)
            shaped = table.shape(aligned.alignment, vectors=aligned.vectors)
            advantages = shaped.advantages(torch.tensor([len(row.sequence.ids) for row in rows]))

            loss = policy_gradient_loss(model, [row.sequence for row in rows], advantages.float())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            reward, bonus = shaped.rewards.mean(), shaped.shaped.bonuses.mean()
            correct = shaped.metrics()["gar/verified_fraction"]
            print(f"step {step:3}   reward {reward:6.3f}   correct {correct:5.1%}   bonus {bonus:.3f}", flush=True)


if __name__ == "__main__":
    main()
