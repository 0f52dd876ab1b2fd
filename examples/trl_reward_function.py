"""Gradient-aligned rewards in a stock `trl.GRPOTrainer`, through one of its reward functions.

    python examples/trl_reward_function.py [--steps 30]

The embedded model learns digit arithmetic on one CPU thread, without a network, in about half a minute. The reward
rises from about 0.4 to about 1.1. Use this if the trainer must stay unchanged. Compared with `GARTrainer` (README.md)
it has these limits:

* The scorer runs its own forward pass. `GARTrainer` uses the states of TRL's log-probability pass if there is one.
* Prompts arrive as text and are encoded again. Plain text and plain chat messages give TRL's token ids. Tools, images
  or chat template arguments may not.
* Each process calls the function for its own responses. On several GPUs a group may be split over two of them, and its
  mean alignment would be wrong, so the function raises an error. `GARTrainer` gathers the group first.
* The model must be whole on each device. Sharded weights (FSDP, ZeRO-3) cannot be read here.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from statistics import mean
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerState
from trl import GRPOConfig, GRPOTrainer

from gar import GARScorer, ResponseGroup
from gar.data import load_arithmetic
from gar.models import load_embedded
from gar.verify import Verifier

NUM_GENERATIONS = 8


def gar_reward_function(scorer: GARScorer) -> Callable[..., list[float | None]]:
    """A reward function for TRL. The data set needs the columns problem_id, answer and expert_solution."""

    def gar_reward(
        prompts: list,
        completion_ids: list[list[int]],
        problem_id: list[str],
        answer: list[str],
        expert_solution: list[str],
        trainer_state: TrainerState,
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        members: dict[str, list[int]] = {}
        for i, name in enumerate(problem_id):  # by id, never by position: TRL may shuffle or split a group
            members.setdefault(name, []).append(i)
        for name, rows in members.items():
            if len(rows) % NUM_GENERATIONS:
                raise ValueError(
                    f"problem {name} has {len(rows)} responses here, expected a multiple of {NUM_GENERATIONS}. "
                    "Does its group lie on several processes? Make the batch per device a multiple, or use GARTrainer."
                )
        scores = scorer.score(
            [
                ResponseGroup(
                    id=name,
                    prompt=prompts[rows[0]],
                    responses=[completion_ids[i] for i in rows],  # ids, not text: what the policy wrote
                    anchors=[expert_solution[rows[0]]],
                    answer=answer[rows[0]],
                )
                for name, rows in members.items()
            ]
        )
        rewards: list[float | None] = [None] * len(prompts)
        for score in scores:
            rewards[members[score.id][score.response_index]] = score.reward
        correct, bonus = mean(score.verified for score in scores), mean(score.bonus for score in scores)
        log_metric("gar/bonus_mean", bonus)  # goes where TRL's own metrics go
        step, reward = trainer_state.global_step + 1, mean(score.reward for score in scores)
        print(f"step {step:3}   reward {reward:6.3f}   correct {correct:5.1%}   bonus {bonus:.3f}", flush=True)
        return rewards

    return gar_reward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="optimizer steps of 8 problems x 8 responses")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)

    model, tokenizer = load_embedded()
    rows = [
        {
            "prompt": problem.prompt,
            "problem_id": problem.id,
            "answer": problem.answer,
            "expert_solution": problem.anchors[0].text,
        }
        for problem in load_arithmetic("train")
    ]
    with Verifier() as verifier, tempfile.TemporaryDirectory() as folder:
        # The same object that the trainer trains, so the scorer always sees the current weights.
        scorer = GARScorer(model, tokenizer, verifier=verifier)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=gar_reward_function(scorer),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            args=GRPOConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=8 * NUM_GENERATIONS,
                num_generations=NUM_GENERATIONS,
                max_completion_length=48,
                learning_rate=1e-3,
                lr_scheduler_type="constant",
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                logging_steps=1,
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)  # the reward function prints
        trainer.train()


if __name__ == "__main__":
    main()
