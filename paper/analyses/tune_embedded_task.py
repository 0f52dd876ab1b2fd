"""Plain GRPO on an embedded task, over seeds: the measurements by which the task was tuned and frozen.

    python -m paper.analyses.tune_embedded_task --task arithmetic --seeds 0 1 2 --steps 100

It runs stock TRL on our task and prints headroom, spread over seeds, the method that each seed settles on, seconds per
step, and the smallest difference that ten paired seeds can show.
"""

import argparse
import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen3ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

from gar import Problem
from gar.evaluation import minimum_detectable_effect, pass_at_k
from paper.tasks.chains import (
    TASKS,
    VERDICT_RIGHT,
    VERDICT_WRONG,
    judge_prompt,
    load_task,
    model_path,
    parse_solution,
    privileged_prompt,
    task_of,
)

FORMAT = re.compile(r"<think>(?:(?!</?think>|</?answer>).)*</think> <answer> (\d) </answer>")
MAX_COMPLETION_TOKENS = 56
PENALTY = -0.6


def reward(completions: list[str], answer: list[str], **_: object) -> list[float]:
    """1 for a right answer in good format, 0 for a wrong one, the penalty for a broken format."""
    matches = [FORMAT.fullmatch(completion.strip()) for completion in completions]
    return [PENALTY if match is None else float(match[1] == gold) for match, gold in zip(matches, answer, strict=True)]


@torch.no_grad()
def sample(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: list[str], num_samples: int
) -> list[list[str]]:
    """Responses at temperature 1, `num_samples` per prompt."""
    batch = tokenizer([prompt for prompt in prompts for _ in range(num_samples)], padding=True, return_tensors="pt")
    out = model.generate(**batch, do_sample=True, top_k=0, max_new_tokens=MAX_COMPLETION_TOKENS)
    texts = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return [texts[start : start + num_samples] for start in range(0, len(texts), num_samples)]


def role(problem: Problem, text: str) -> str | None:
    """Role of the response's method for the problem: expert, habit, guess, or None."""
    return task_of(problem).role_of(parse_solution(text).method, problem)


def shares(labels: list[object]) -> dict[str, float]:
    """How often each label occurs, as fractions."""
    return {str(label): round(count / len(labels), 3) for label, count in Counter(labels).most_common()}


def evaluate(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    problems: list[Problem],
    *,
    prompts: list[str] | None = None,
    num_samples: int = 8,
) -> dict[str, object]:
    """pass@1, pass@4, format errors, zero-std groups, methods and wordings, from samples with a fixed seed."""
    set_seed(1234)
    model.eval()
    groups = sample(model, tokenizer, prompts or [str(p.prompt) for p in problems], num_samples)
    rewards = np.array([reward(texts, [p.answer] * num_samples) for p, texts in zip(problems, groups, strict=True)])
    right = (rewards == 1).sum(axis=1)
    parsed = [parse_solution(text) for texts in groups for text in texts]
    flat = rewards.ravel()
    methods = [role(p, text) for p, texts in zip(problems, groups, strict=True) for text in texts]
    return {
        "pass@1": round(float(right.mean() / num_samples), 3),
        "pass@4": round(float(np.mean([pass_at_k(num_samples, int(r), 4) for r in right])), 3),
        "format_errors": round(float((flat < 0).mean()), 3),
        "all_right": round(float((right == num_samples).mean()), 3),
        "all_wrong": round(float((right == 0).mean()), 3),
        "methods": shares(methods),
        "wordings": shares([p.wording for p in parsed]),
        "right_by_method": {
            str(m): round(float(np.mean([f == 1 for f, k in zip(flat, methods, strict=True) if k == m])), 3)
            for m in sorted(set(methods), key=str)
        },
    }


@torch.no_grad()
def judge(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: list[Problem]) -> dict[str, object]:
    """Accuracy of the verdict token on the model's own well-formatted responses, by method, right and wrong apart."""
    set_seed(1234)
    groups = sample(model, tokenizer, [str(p.prompt) for p in problems], 8)
    rows = [(p, t) for p, texts in zip(problems, groups, strict=True) for t in texts if reward([t], [p.answer])[0] >= 0]
    batch = tokenizer([judge_prompt(p, text) for p, text in rows], padding=True, return_tensors="pt")
    logits = model(**batch, logits_to_keep=1).logits[:, -1].float()
    right_id, wrong_id = tokenizer.convert_tokens_to_ids([VERDICT_RIGHT, VERDICT_WRONG])
    says_right = (logits[:, right_id] > logits[:, wrong_id]).tolist()
    hits: dict[str, list[bool]] = {}
    for (problem, text), verdict in zip(rows, says_right, strict=True):
        truth = reward([text], [problem.answer])[0] == 1
        for key in ("all", f"{role(problem, text)}, {'right' if truth else 'wrong'}"):
            hits.setdefault(key, []).append(verdict == truth)
    return {key: f"{np.mean(h):.3f} of {len(h)}" for key, h in sorted(hits.items())}


def run_grpo(
    task: str, checkpoint: Path, seed: int, num_steps: int, learning_rate: float, schedule: str
) -> dict[str, object]:
    """Train one seed and evaluate it."""
    problems = load_task(task, "train")
    rows = Dataset.from_list([{"prompt": p.prompt, "answer": p.answer} for p in problems])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    model = Qwen3ForCausalLM.from_pretrained(checkpoint)
    with TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder,
            seed=seed,
            max_steps=num_steps,
            learning_rate=learning_rate,
            lr_scheduler_type=schedule,
            per_device_train_batch_size=64,
            num_generations=8,
            max_completion_length=MAX_COMPLETION_TOKENS,
            loss_type="grpo",
            scale_rewards="group",
            beta=0.0,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(model, reward, args=args, train_dataset=rows, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
    curve = [round(log["reward"], 2) for log in trainer.state.log_history if "reward" in log]
    return {
        "seed": seed,
        "seconds_per_step": round(seconds / num_steps, 3),
        "curve": [round(float(np.mean(curve[i : i + 10])), 2) for i in range(0, len(curve), 10)],
        "test": evaluate(model, tokenizer, load_task(task, "test")),
        "harder": evaluate(model, tokenizer, load_task(task, "harder")),
    }


def main() -> None:
    """Print the base model's numbers, one line per seed, and the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default=next(iter(TASKS)), help="default: %(default)s")
    parser.add_argument("--checkpoint", type=Path, default=None, help="default: the task's embedded one")
    parser.add_argument("--seeds", type=int, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--schedule", default="constant")
    args = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = args.checkpoint or model_path(args.task)
    model, tokenizer = Qwen3ForCausalLM.from_pretrained(checkpoint), PreTrainedTokenizerFast.from_pretrained(checkpoint)
    test, harder = load_task(args.task, "test"), load_task(args.task, "harder")
    print("base test      ", json.dumps(evaluate(model, tokenizer, test)))
    print("base harder    ", json.dumps(evaluate(model, tokenizer, harder)))
    privileged = [privileged_prompt(p) for p in test]
    print("base privileged", json.dumps(evaluate(model, tokenizer, test, prompts=privileged)))
    print("base judge     ", json.dumps(judge(model, tokenizer, test)), flush=True)
    results = []
    for seed in args.seeds:
        results.append(run_grpo(args.task, checkpoint, seed, args.steps, args.lr, args.schedule))
        print(f"seed {seed}", json.dumps(results[-1]), flush=True)
    for split in ("test", "harder") if len(results) > 1 else ():
        finals = [float(result[split]["pass@1"]) for result in results]
        sd = float(np.std(finals, ddof=1))
        effect = minimum_detectable_effect(np.sqrt(2) * sd, 10)  # two independent arms, each with this spread
        print(
            f"{split}: pass@1 {np.mean(finals):.3f}, std {sd:.3f} over {len(finals)} seeds; "
            f"ten paired seeds can show a difference of {effect:.3f}"
        )


if __name__ == "__main__":
    main()
