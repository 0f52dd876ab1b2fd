"""The same rollouts for any number of ranks: a response depends on its place in the batch of all ranks alone."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from trl import GRPOConfig

from gar.core import unit_rows
from gar.data.arithmetic import load_arithmetic, write_solution
from gar.integrations.trl.trainer import GARTrainer
from gar.models.embedded import load_embedded
from gar.response import TokenSequence
from gar.types import Problem, ResponseFormat, Status, Tags, Verdict
from tests.integrations.conftest import SMALL

GROUP = 8
NUM_RESPONSES = 5 * GROUP
PLAN = (  # which of a group's responses are right, on the two steps; the middle group lies half on each of two ranks
    ("11111111", "10010110", "01100101", "00000000", "00010000"),
    ("11111111", "10010110", "11110000", "00000000", "00000000"),  # nothing right on the second of two ranks
)
PLAIN_STEPS = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1}  # Adam would amplify rounding of small gradients
WAYS = [(method, wording) for method in ("stepwise", "running", "guess") for wording in ("symbols", "words")]


class AnswerVerifier:
    """Right is the gold answer in its tags. Badly formatted is what does not begin with the thinking tag."""

    format: ResponseFormat = "think-answer"
    tags = Tags()

    def verify(self, responses: Sequence[str], golds: Sequence[str], **_: Any) -> list[Verdict]:
        return [self._verdict(response, gold) for response, gold in zip(responses, golds, strict=True)]

    def _verdict(self, response: str, gold: str) -> Verdict:
        right, formatted = f"<answer> {gold} </answer>" in response, response.startswith("<think>")
        status = Status.OK if right else Status.WRONG
        return Verdict(status=status, grade=float(right), verified=right, well_formatted=formatted)


def is_right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """The same as a reward function. Its texts have no tags, which are special tokens."""
    return [float(re.findall(r"\d", text)[-1] == gold) for text, gold in zip(completions, answer, strict=True)]


class NotingTrainer(GARTrainer):
    """Notes vectors and means of each step, what they come from, and the rows of passes without gradients by origin."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.vectors: list[torch.Tensor] = []
        self.means: list[tuple[TokenSequence, torch.Tensor]] = []
        self.num_forwards: list[int] = []
        self.num_needed = self.num_captured = 0
        self.rows: dict[str, list[int]] = {"TRL": [], "GAR": []}
        self._within = "TRL"
        self._states.policy.backbone.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():
            self.rows[self._within].append(len(kwargs["input_ids"]))

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._within, before = "GAR", len(self.rows["GAR"])
        rewards = super()._calculate_rewards(*args, **kwargs)
        self._within, batch = "TRL", self._batch
        self.num_forwards.append(len(self.rows["GAR"]) - before)
        means = torch.zeros(len(batch), self._states.policy.width, device=self._states.policy.device)
        for i, mean in batch.means.items():
            means[i] = mean
        self.vectors.append(self._gather(unit_rows(means)))
        self.means += [(batch.responses[i].sequence, mean.cpu()) for i, mean in batch.means.items()]
        self.num_needed += int(batch.step.needed[batch.step.here].sum())
        self.num_captured += batch.num_passed
        return rewards


class ReplayTrainer(NotingTrainer):
    """Writes the responses of `PLAN` instead of sampling."""

    def _generate_single_turn(self, prompt_ids: list, *args: Any, **kwargs: Any) -> tuple:
        offset, step = self.accelerator.process_index * len(prompt_ids), len(self.vectors)
        texts = [response_text(problem, offset + i, step=step) for i, problem in enumerate(self._batch.problems)]
        eos = [self.processing_class.eos_token_id]
        return [self.processing_class.encode(text, add_special_tokens=False) + eos for text in texts], None


def response_text(problem: Problem, place: int, *, step: int) -> str:
    group, member = divmod(place, GROUP)
    right = PLAN[step][group][member] == "1"
    text = write_solution(problem, *WAYS[member % len(WAYS)])
    if not right:
        wrong = (int(problem.answer) + 1 + member) % 10
        wrong = (wrong + 1) % 10 if str(wrong) == problem.answer else wrong
        text = text.replace(f"<answer> {problem.answer} </answer>", f"<answer> {wrong} </answer>")
    return text.removeprefix("<think>") if member == 5 and group % 2 else text


def replay(folder: Path, args: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Two steps on the ranks of the process group, and their results on this rank."""
    model, tokenizer = load_embedded()
    problems = load_arithmetic("train")[:64]
    problems = [replace(p, anchors=()) if i % 5 == 0 else p for i, p in enumerate(problems)]
    records: list = []
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    trainer = ReplayTrainer(
        model, train_dataset=problems, processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            **(SMALL | PLAIN_STEPS | {"per_device_train_batch_size": NUM_RESPONSES // ranks} | args),
        ),
        on_rollouts=lambda step, rows: records.extend(rows),
        **({} if "reward_funcs" in options else {"verifier": AnswerVerifier()}), **options,
    )  # fmt: skip
    trainer.train()
    return {
        "wrapper": type(trainer.model_wrapped).__name__,
        "records": records,
        "vectors": torch.stack(trainer.vectors),
        "num_forwards": trainer.num_forwards,
        "metrics": [row for row in trainer.state.log_history if "gar/alignment_mean" in row],
        "weights": {name: tensor.clone() for name, tensor in model.state_dict().items()},
    }
