"""Teach a real language model the format of the word problems, so that it is sometimes right.

    python -m paper.tasks.warm_start [--model smollm2] [--out runs/warm-start] [--examples 400] [--learning-rate 1e-4]

Supervised fine-tuning with TRL's SFTTrainer on solutions to problems outside of every split, by two methods or more.
Then `gar train paper/tasks/word-problems.yaml` has right and wrong responses from its first step.
"""

import argparse
import random
from collections.abc import Sequence

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from gar import ModelSettings
from gar.core import cpu_has_bfloat16_products
from gar.models import load_policy
from paper.tasks.word_problems import METHODS, NUM_STEPS, WORDINGS, Method, draw_story, load_stories, write_solution


def solutions(number: int, steps_share: float, others: Sequence[Method], seed: int) -> list[dict[str, str]]:
    """Problems outside of every split, each with one solution: a share of `steps_share` by steps, the rest by turns."""
    rng = random.Random(seed)
    taken = {story.text for stories in load_stories().values() for story, _ in stories}
    rows: list[dict[str, str]] = []
    while len(rows) < number:
        story = draw_story(rng, rng.choice(NUM_STEPS["train"]))
        if story.text not in taken:
            method = METHODS[0] if rng.random() < steps_share else others[len(rows) % len(others)]
            rows.append({"prompt": story.text, "completion": write_solution(story, method, rng.choice(WORDINGS))})
    return rows


def main() -> None:
    """Fine-tune and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="as gar train --model.path")
    parser.add_argument("--out", default="runs/warm-start")
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--steps-share", type=float, default=0.5, help="share of solutions by steps")
    parser.add_argument("--other-method", choices=METHODS[1:], nargs="+", default=METHODS[1:2], help="of the others")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model, tokenizer = load_policy(ModelSettings(path=options.model))
    arguments = SFTConfig(
        output_dir=options.out,
        learning_rate=options.learning_rate,
        num_train_epochs=1,
        per_device_train_batch_size=16,
        gradient_checkpointing=False,
        bf16=torch.cuda.is_available() or cpu_has_bfloat16_products(),
        use_cpu=not torch.cuda.is_available(),
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=options.seed,
    )
    rows = solutions(options.examples, options.steps_share, options.other_method, options.seed)
    trainer = SFTTrainer(model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print(f"step {entry['step']:>3}   loss {entry['loss']:.3f}")
    trainer.save_model(options.out)
    print(f"Model in {options.out}")


if __name__ == "__main__":
    main()
