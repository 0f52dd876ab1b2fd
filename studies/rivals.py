"""Self-distillation on the expert solution, on the terms of the comparisons: TRL's SDFT or SDPO on the embedded task.

    python -m studies.rivals sdft --seed 0
    python -m studies.rivals sdpo --seed 0 --steps 100 --updates 1

Data, rollouts per step, learning rate and evaluation are those of the preset `bench`; the teacher is the model itself
with the expert solution before the problem, as `privileged_prompt` writes it and the embedded model was trained to
read it. The run folder is one of `gar train`: run.json has the summary. docs/rivals.md has results.
"""

import argparse
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRL_EXPERIMENTAL_SILENCE="1")

import rich
import torch
import transformers
from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback
from trl.experimental.sdft import SDFTConfig, SDFTTrainer
from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

from gar.analysis.summary import render_summary, summarise
from gar.config import RunConfig, dump_config, make_config, merge, read_preset
from gar.data.arithmetic import SEPARATOR, load_arithmetic
from gar.evaluation.evaluate import Sampling, evaluate_policy
from gar.integrations.trl.callbacks import RunCallback
from gar.models.load import load_policy
from gar.records import RunFolder, canonical_hash
from gar.types import Problem
from gar.verify import Verifier

CONFIGS: dict[str, Any] = {"sdft": SDFTConfig, "sdpo": SDPOConfig}
CHANGES: dict[str, dict[str, Any]] = {
    "sdft": {
        "teacher_prompt_template": f"{{privileged_context}} {SEPARATOR} {{prompt}}",
        # TRL's default is the 100 likeliest tokens; the embedded model has 36.
        "distillation_mode": "full_logits",
    },
    "sdpo": {
        # The expert solution takes the place of an environment's feedback, and of the peers' correct responses: the
        # embedded model reads one solution before a problem, not two.
        "include_environment_feedback": True,
        "use_successful_as_teacher": False,
        "feedback_template": f"{{feedback_raw}} {SEPARATOR} ",
        "reprompt_template": "{feedback}{prompt}",
        "loss_type": "grpo",
    },
}
"""Arguments in which we differ from TRL's defaults."""


class TimedCallback(RunCallback):
    """Also logs the seconds of a step, rollouts included."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Log the trainer's metrics and the time."""
        timed = {**(logs or {}), "time/step_seconds": time.perf_counter() - self._start}
        super().on_log(args, state, control, logs=timed, **kwargs)


def make_rewards(verifier: Verifier, penalty: float) -> Callable[..., list[float]]:
    """SDPO's reward function: base 1, penalty for bad format. Without peers' responses it is only logged."""

    def outcome_rewards(completions: list[str], answer: list[str], **_: object) -> list[float]:
        verdicts = verifier.verify(completions, answer)
        return [float(v.verified and v.well_formatted) + (0.0 if v.well_formatted else penalty) for v in verdicts]

    return outcome_rewards


def make_trainer(
    rival: str, model: Any, tokenizer: Any, problems: list[Problem], verifier: Verifier, config: RunConfig, folder: Path
) -> Any:
    """TRL's trainer with the run's budget."""
    kind = CONFIGS[rival]
    known = {field.name for field in dataclasses.fields(kind)}
    shared = {name: value for name, value in config.trl.items() if name in known}
    args = kind(
        output_dir=str(folder / "checkpoints"),
        seed=config.seed,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        **shared,
        **CHANGES[rival],
    )
    rows = Dataset.from_list(
        [{"prompt": p.prompt, "privileged_context": p.anchors[0].text, "answer": p.answer} for p in problems]
    )
    parts: dict[str, Any] = {"args": args, "train_dataset": rows, "processing_class": tokenizer}
    if rival == "sdft":
        return SDFTTrainer(model, **parts)
    return SDPOTrainer(model, reward_funcs=make_rewards(verifier, config.reward.penalty), **parts)


def evaluate(folder: RunFolder, name: str, model: Any, tokenizer: Any, verifier: Verifier, config: RunConfig) -> None:
    """Write `evaluation/NAME.json` as a run of `gar train` does."""
    length = config.trl["max_completion_length"]
    sampling = Sampling.from_settings(config.evaluate, seed=config.seed, max_new_tokens=length)
    sets = {
        source: evaluate_policy(
            model, tokenizer, load_arithmetic(source), verifier, config.evaluate, sampling
        ).to_json()
        for source in config.evaluate.sources
    }
    folder.write_json(f"evaluation/{name}.json", {"step": config.trl["max_steps"] * (name == "after"), "sets": sets})


def run(rival: str, config: RunConfig) -> RunFolder:
    """Evaluate, train, evaluate again, and summarise."""
    model, tokenizer = load_policy(config.model)
    problems = load_arithmetic("train")
    folder = RunFolder.create(config.records.folder, config.records.name or f"{rival}-{config.seed}")
    folder.write_run(
        seed=config.seed,
        command=["python", "-m", "studies.rivals", *sys.argv[1:]],
        config={"rival": rival, "own": CHANGES[rival], **config.model_dump(mode="json")},
        config_text=dump_config(config),
        data_hash=canonical_hash([dataclasses.asdict(problem) for problem in problems]),
    )
    with Verifier(format=config.verify.format) as verifier:
        evaluate(folder, "before", model, tokenizer, verifier, config)
        trainer = make_trainer(rival, model, tokenizer, problems, verifier, config, folder.path)
        for printing in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printing)
        trainer.add_callback(TimedCallback(folder))
        trainer.train()
        evaluate(folder, "after", trainer.model, tokenizer, verifier, config)
    folder.update_run(status="finished", summary=summarise(folder))
    return folder


def main() -> None:
    """Parse the command line, run, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rival", choices=list(CONFIGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None, help="optimiser steps; default: the preset's")
    parser.add_argument("--updates", type=int, default=None, help="per rollout; default: the preset's")
    parser.add_argument("--learning-rate", type=float, default=None, help="default: the preset's")
    parser.add_argument("--folder", default="runs", help="parent of the run folder")
    parser.add_argument(
        "--problems", type=int, default=None, help="evaluate on the first so many; default: the preset's"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|accelerate)\.")
    transformers.utils.logging.disable_progress_bar()
    chosen = {
        "max_steps": options.steps,
        "num_iterations": options.updates,
        "learning_rate": options.learning_rate,
    }
    over: dict[str, Any] = {
        "seed": options.seed,
        "method": "grpo",
        "records": {"folder": options.folder},
        "trl": {name: value for name, value in chosen.items() if value is not None},
    }
    if options.problems is not None:
        over["evaluate"] = {"max_problems": options.problems}
    folder = run(options.rival, make_config(merge(read_preset("bench"), over)))
    rich.print(render_summary(folder.read_run().summary))
    rich.print(f"Run folder: {folder.path}")


if __name__ == "__main__":
    main()
