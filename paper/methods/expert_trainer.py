"""`GARTrainer` with expert solutions in the loss: as members of their groups (LUFFY), or by imitation (CHORD)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gar import ConfigError, DataError
from gar.integrations.trl import GARTrainer, RolloutBatch, RunParts
from gar.methods import ScoredBatch, eligible_responses, outcome_rewards
from gar.scoring import Response, check_anchors, judge
from paper.methods.expert_losses import imitation_weight, off_policy_token_losses
from paper.methods.experts import ChordSettings
from paper.methods.step_sum import StepSum


@dataclass(frozen=True, kw_only=True, slots=True)
class _Solution:
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    reward: float


def check_solutions(parts: RunParts) -> None:
    """Warn of expert solutions that do not fit the model. A `DataError` if none does."""
    if not any(problem.anchors for problem in parts.problems):
        raise DataError(
            f"{parts.settings.method} trains on expert solutions, and none of the {len(parts.problems)} problems has "
            "one. Name their column with --data.expert_fields, or train with grpo."
        )
    if note := check_anchors(parts.problems, parts.reader):
        warnings.warn(note, stacklevel=2)


class ExpertTrainer(GARTrainer):
    """What LUFFY and CHORD have in common: the first expert solution of each problem, and its log-probabilities.

    Args:
        model: The policy.
        **kwargs: As in `GARTrainer`.
    """

    name: ClassVar[str]

    def __init__(self, model: Any, **kwargs: Any):
        self._responses_verifier = kwargs["verifier"]
        self._known: dict[int, _Solution] = {}
        self._tokens = StepSum("gar/expert_tokens")
        kwargs.setdefault("method", self.name)
        super().__init__(model, **kwargs)
        self._group_size = cast(int, self.num_generations)
        self._scale: Literal["std", "none"] = "std" if kwargs["args"].scale_rewards == "group" else "none"

    def token_advantages(self, batch: RolloutBatch, inputs: dict[str, Any], in_loss: Tensor) -> Tensor:
        """The run's advantages. Notes the group of each response, and the share of responses with a solution."""
        self._read_solutions(batch)
        known = sum(group in self._known for group in batch.group_index)
        inputs["expert_group"] = torch.tensor(batch.group_index, device=in_loss.device)
        # Of the whole generation, as TRL's num_items_in_batch: a micro-batch may hold more or less of them.
        inputs["expert_fraction"] = torch.tensor(known / len(batch), device=in_loss.device)
        return inputs["advantages"]

    def _read_solutions(self, batch: RolloutBatch) -> None:
        """Take in the solutions of new groups, after the prompts that the policy read."""
        problems, reader = batch.problems, self.reader
        first = {group: i for i, group in reversed(list(enumerate(batch.group_index)))}
        new = [i for group, i in sorted(first.items()) if group not in self._known and problems[i].anchors]
        sequences = [reader.anchor(batch.responses[i].sequence.context_ids, problems[i].anchors[0].text) for i in new]
        fits = [reader.fault(sequence) is None for sequence in sequences]
        new, sequences = list(compress(new, fits)), list(compress(sequences, fits))
        solutions = [
            Response(
                group_index=batch.group_index[i],
                text=reader.text(sequence.ids),
                prefilled=reader.prefilled(sequence.context_ids),
            )
            for i, sequence in zip(new, sequences, strict=True)
        ]
        judged = judge(self._responses_verifier, solutions, [problems[i] for i in new])
        facts = ScoredBatch(
            verified=torch.tensor([solution.verdict.verified for solution in judged], dtype=torch.bool),
            well_formatted=torch.tensor([solution.verdict.well_formatted for solution in judged], dtype=torch.bool),
            group_index=torch.tensor([solution.group_index for solution in judged], dtype=torch.long),
            num_tokens=torch.tensor([len(sequence.ids) for sequence in sequences], dtype=torch.long),
            alignment=torch.full((len(new),), torch.nan),
        )
        if new and not self._known:
            self._look_at_first(facts)
        rewards = outcome_rewards(facts, self.shaping.reward).rewards.tolist()
        end = cast(int, self._tokenizer.eos_token_id)
        for i, sequence, reward in zip(new, sequences, rewards, strict=True):
            ids = [*sequence.ids, end]
            self._known[batch.group_index[i]] = _Solution(prompt_ids=sequence.context_ids, ids=ids, reward=reward)

    def _look_at_first(self, facts: ScoredBatch) -> None:
        """Check on a run's first solutions whether the verifier accepts experts."""

    def _expert_log_probs(self, model: Any, inputs: dict[str, Any]) -> tuple[list[int], Tensor, Tensor, Tensor]:
        """The groups of a micro-batch with a solution, as the loss needs them.

        Returns:
            The groups, how many rows each has here, and log-probabilities and mask of the solutions' tokens.
        """
        groups, counts = inputs["expert_group"].unique(return_counts=True)
        known = torch.tensor([group in self._known for group in groups.tolist()], device=groups.device)
        groups, counts = groups[known].tolist(), counts[known]
        log_probs, mask = self._log_probs(model, [self._known[group] for group in groups], counts.device)
        self._tokens.add(self, float((mask.sum(1) * counts).sum()) / self._group_size)
        return groups, counts.to(log_probs), log_probs, mask

    def _log_probs(self, model: Any, solutions: Sequence[_Solution], device: Any) -> tuple[Tensor, Tensor]:
        if not solutions:
            return torch.zeros(0, 1, device=device), torch.zeros(0, 1, device=device)
        pad_token = cast(int, self._tokenizer.pad_token_id)
        ids, mask = _padded([solution.ids for solution in solutions], "right", pad_token, device)
        prompt_ids, prompt_mask = _padded([s.prompt_ids for s in solutions], "left", pad_token, device)
        log_probs = self._get_per_token_logps_and_entropies(
            model, torch.cat([prompt_ids, ids], dim=1), torch.cat([prompt_mask, mask], dim=1), ids.shape[1]
        )[0]
        return log_probs, mask

    def _num_rows(self, inputs: dict[str, Any]) -> int:
        """Responses of the optimizer step to which a micro-batch belongs."""
        return len(inputs["expert_group"]) * self.current_gradient_accumulation_steps


class LuffyTrainer(ExpertTrainer):
    """LUFFY: the expert solution is one more, off-policy member of its group."""

    name = "luffy"

    def __init__(self, model: Any, **kwargs: Any):
        super().__init__(model, **kwargs)
        if len(self.reward_funcs) > 1:
            raise ConfigError(
                "luffy compares responses with an expert solution, which only the verifier rewards. Leave out the "
                f"{len(self.reward_funcs) - 1} further reward_funcs, or take chord."
            )

    def token_advantages(self, batch: RolloutBatch, inputs: dict[str, Any], in_loss: Tensor) -> Tensor:
        """Advantages over groups that have their expert solution for one more member."""
        super().token_advantages(batch, inputs, in_loss)
        weight = float(self.reward_weights[0])
        rewards, groups = batch.step.shaped.rewards * weight, torch.tensor(batch.group_index)
        token_counts = in_loss.sum(1).cpu()
        members = [group for group in groups.unique().tolist() if group in self._known]
        solutions = [self._known[group] for group in members]
        advantages = self.shaping.advantages(
            torch.cat([rewards, rewards.new_tensor([solution.reward * weight for solution in solutions])]),
            torch.cat([groups, groups.new_tensor(members)]),
            token_counts=torch.cat([token_counts, token_counts.new_tensor([len(s.ids) for s in solutions])]),
            scale=self._scale,
        ).float()
        by_group = dict(zip(members, advantages[len(rewards) :].tolist(), strict=True))
        experts = [by_group.get(group, 0.0) for group in groups.tolist()]
        inputs["expert_advantages"] = torch.tensor(experts, device=in_loss.device)
        return advantages[: len(rewards)]

    def with_added_loss(self, model: Any, inputs: dict[str, Any], loss: Tensor) -> Tensor:
        """The mean over responses and solutions, in which every row of a group holds an equal share of its solution."""
        groups, counts, log_probs, mask = self._expert_log_probs(model, inputs)
        first = [int((inputs["expert_group"] == group).nonzero()[0]) for group in groups]
        advantages = inputs["expert_advantages"][first][:, None]
        losses = _sum_over_rows(off_policy_token_losses(log_probs, advantages), mask, counts / self._group_size)
        num_rows = self._num_rows(inputs)
        num_solutions = float(inputs["expert_fraction"]) * num_rows / self._group_size
        return (num_rows * loss + losses) / (num_rows + num_solutions)

    def _look_at_first(self, facts: ScoredBatch) -> None:
        if bool(eligible_responses(facts, self.shaping.reward).any()):
            return
        fault = "the format" if bool(facts.verified.any()) or not bool(facts.well_formatted.any()) else "the answer"
        warnings.warn(
            f"None of the first {len(facts.verified)} expert solutions earns the base reward ({fault} is not what the "
            "verifier asks for): luffy trains away from them. Write them in the format of the responses, or set "
            "verify.format.",
            stacklevel=2,
        )


class ChordTrainer(ExpertTrainer):
    """CHORD-mu: a mixture of grpo's loss and imitation with a falling share mu.

    Args:
        model: The policy.
        fall: How mu falls.
        **kwargs: As in `GARTrainer`.
    """

    name = "chord"

    def __init__(self, model: Any, *, fall: ChordSettings | None = None, **kwargs: Any):
        super().__init__(model, **kwargs)
        self._fall = fall or ChordSettings()

    def with_added_loss(self, model: Any, inputs: dict[str, Any], loss: Tensor) -> Tensor:
        """`(1 - mu)` times TRL's loss, and mu times the mean negative log-likelihood of the solutions."""
        _, counts, log_probs, mask = self._expert_log_probs(model, inputs)
        decay_steps = round(self._fall.decay * self.state.max_steps)
        weight = imitation_weight(self.state.global_step, decay_steps, peak=self._fall.peak, valley=self._fall.valley)
        self._metrics["train"]["gar/imitation_weight"].append(weight)
        num_with_solution = float(inputs["expert_fraction"]) * self._num_rows(inputs)
        imitation = _sum_over_rows(-log_probs, mask, counts) / (num_with_solution or 1.0)
        return (1 - weight) * loss + weight * imitation


def _padded(rows: Sequence[Sequence[int]], side: str, pad_token: int, device: Any) -> tuple[Tensor, Tensor]:
    tensors = [torch.tensor(row, device=device) for row in rows]
    masks = [torch.ones(len(row), dtype=torch.long, device=device) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad_token, padding_side=side)
    return ids, pad_sequence(masks, batch_first=True, padding_side=side)


def _sum_over_rows(losses: Tensor, mask: Tensor, counts: Tensor) -> Tensor:
    """As TRL's loss_type grpo: the mean over a solution's tokens, summed over the rows that it stands for."""
    means = (losses * mask).sum(1) / mask.sum(1).clamp(min=1)
    return (means * counts).sum()
