"""Training on the expert solutions themselves beside TRL's loss: as members of their groups, or by imitation."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gar.core import imitation_weight, off_policy_token_losses
from gar.data.problems import prompt_text
from gar.integrations.trl.metrics import StepSum
from gar.integrations.trl.rollouts import RolloutBatch
from gar.methods import Method
from gar.methods.base import ScoredBatch, eligible_responses, outcome_rewards
from gar.settings import RewardSettings
from gar.shaping import Shaping
from gar.spans import SequenceReader
from gar.types import Problem, ResponseVerifier

DECAY_FRACTION = 0.5
"""Share of a run's steps over which CHORD's mu falls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Solution:
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    reward: float


class ExpertLoss:
    """The first expert solution of each problem, and the loss on it.

    Args:
        method: Says which loss.
        reader: Reads solutions as responses.
        verifier: Gives a solution the reward that it would earn as a response.
        reward: As for responses.
        end_token: Ends a solution.
    """

    def __init__(
        self,
        method: Method,
        reader: SequenceReader,
        verifier: ResponseVerifier,
        reward: RewardSettings,
        *,
        end_token: int,
    ):
        self._method, self._reader, self._verifier, self._reward = method, reader, verifier, reward
        self._end_token = end_token
        self._known: dict[int, _Solution] = {}
        self._tokens = StepSum("gar/expert_tokens")

    def read(self, problems: Sequence[Problem], groups: Sequence[int], prompts: Sequence[Sequence[int]]) -> None:
        """Take in the solutions of new groups, after the prompts that the policy read."""
        first = {group: i for i, group in reversed(list(enumerate(groups)))}
        new = [i for group, i in sorted(first.items()) if group not in self._known and problems[i].anchors]
        sequences = [self._reader.anchor(prompts[i], problems[i].anchors[0].text) for i in new]
        fits = [self._reader.fault(sequence) is None for sequence in sequences]
        new, sequences = list(compress(new, fits)), list(compress(sequences, fits))
        verdicts = self._verifier.verify(
            [self._reader.text(sequence.ids) for sequence in sequences],
            [problems[i].answer for i in new],
            prefilled_think=[self._reader.prefilled(sequence.context_ids) for sequence in sequences],
            prompts=[prompt_text(problems[i].prompt) for i in new],
        )
        facts = ScoredBatch(
            verified=torch.tensor([verdict.verified for verdict in verdicts], dtype=torch.bool),
            well_formatted=torch.tensor([verdict.well_formatted for verdict in verdicts], dtype=torch.bool),
            group_index=torch.tensor([groups[i] for i in new]),
            alignment=torch.full((len(new),), torch.nan),
            scored=torch.zeros(len(new), dtype=torch.bool),
        )
        if self._method.expert_loss == "member" and new and not self._known:
            self._warn_of_ineligible(facts)
        rewards = outcome_rewards(facts, self._reward).rewards.tolist()
        for i, sequence, reward in zip(new, sequences, rewards, strict=True):
            ids = [*sequence.ids, self._end_token]
            self._known[groups[i]] = _Solution(prompt_ids=sequence.context_ids, ids=ids, reward=reward)

    def _warn_of_ineligible(self, facts: ScoredBatch) -> None:
        if not bool(eligible_responses(facts, self._reward).any()):
            fault = "the format" if bool(facts.verified.any()) or not bool(facts.well_formatted.any()) else "the answer"
            warnings.warn(
                f"None of the first {len(facts.verified)} expert solutions earns the base reward ({fault} is not what "
                f"the verifier asks for): {self._method.name} trains away from them. Write them in the format of the "
                "responses, or set verify.format.",
                stacklevel=2,
            )

    def inputs(self, trainer: Any, batch: RolloutBatch, in_loss: Tensor) -> dict[str, Tensor]:
        """What `add` needs of each response, beside TRL's own tensors: its group, and advantages where they change.

        Args:
            trainer: A `GARTrainer`.
            batch: Responses with their rewards.
            in_loss: Which of their tokens are in the loss.
        """
        self.read(batch.problems, batch.group_index, [sequence.context_ids for sequence in batch.sequences])
        groups = torch.tensor(batch.group_index)
        known = sum(group in self._known for group in batch.group_index)
        # Of the whole generation, as TRL's num_items_in_batch: a micro-batch may hold more or less of them.
        tensors = {"expert_group": groups, "expert_fraction": torch.tensor(known / len(groups))}
        if self._method.expert_loss == "member":
            weight = float(trainer.reward_weights[0])
            tensors |= self._member_advantages(
                trainer._shaping,
                batch.rewarded.rewards * weight + trainer._further_rewards,
                groups,
                in_loss.sum(1).cpu(),
                weight=weight,
                scale="std" if trainer.args.scale_rewards == "group" else "none",
            )
        return {name: tensor.to(in_loss.device) for name, tensor in tensors.items()}

    def _member_advantages(
        self, shaping: Shaping, rewards: Tensor, groups: Tensor, token_counts: Tensor, *, weight: float, scale: Any
    ) -> dict[str, Tensor]:
        """Advantages over groups that have their expert solution for one more member."""
        members = [group for group in groups.unique().tolist() if group in self._known]
        solutions = [self._known[group] for group in members]
        advantages = shaping.advantages(
            torch.cat([rewards, rewards.new_tensor([solution.reward * weight for solution in solutions])]),
            torch.cat([groups, groups.new_tensor(members)]),
            token_counts=torch.cat([token_counts, token_counts.new_tensor([len(s.ids) for s in solutions])]),
            scale=scale,
        ).float()
        by_group = dict(zip(members, advantages[len(rewards) :].tolist(), strict=True))
        experts = [by_group.get(group, 0.0) for group in groups.tolist()]
        return {"advantages": advantages[: len(rewards)], "expert_advantages": torch.tensor(experts)}

    def add(self, trainer: Any, model: Any, inputs: dict[str, Any], loss: Tensor) -> Tensor:
        """TRL's loss of one micro-batch, and that of the expert solutions to its problems.

        The losses of an optimizer step's micro-batches add up to that of the whole batch.
        """
        groups, counts = inputs["expert_group"].unique(return_counts=True)
        known = torch.tensor([group in self._known for group in groups.tolist()], device=groups.device)
        groups, counts = groups[known], counts[known].to(loss)
        log_probs, mask = self._log_probs(trainer, model, groups.tolist(), loss.device)
        self._tokens.add(trainer, float((mask.sum(1) * counts).sum()) / trainer.num_generations)
        num_rows = len(inputs["expert_group"]) * trainer.current_gradient_accumulation_steps
        num_with_solution = float(inputs["expert_fraction"]) * num_rows
        if self._method.expert_loss == "mixture":
            decay_steps = round(DECAY_FRACTION * trainer.state.max_steps)
            weight = imitation_weight(trainer.state.global_step, decay_steps)
            trainer._metrics["train"]["gar/imitation_weight"].append(weight)
            imitation = _sum_over_rows(-log_probs, mask, counts) / (num_with_solution or 1.0)
            return (1 - weight) * loss + weight * imitation
        first = [int((inputs["expert_group"] == group).nonzero()[0]) for group in groups]
        advantages = inputs["expert_advantages"][first][:, None]
        # Each solution is one more member of its group: every row of the group holds an equal share of it.
        losses = _sum_over_rows(off_policy_token_losses(log_probs, advantages), mask, counts / trainer.num_generations)
        return (num_rows * loss + losses) / (num_rows + num_with_solution / trainer.num_generations)

    def _log_probs(self, trainer: Any, model: Any, groups: Sequence[int], device: Any) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the solutions' tokens and which of them count, [solutions, tokens]."""
        solutions = [self._known[group] for group in groups]
        if not solutions:
            return torch.zeros(0, 1, device=device), torch.zeros(0, 1, device=device)
        ids, mask = _padded([solution.ids for solution in solutions], "right", trainer._tokenizer.pad_token_id, device)
        prompt_ids, prompt_mask = _padded(
            [s.prompt_ids for s in solutions], "left", trainer._tokenizer.pad_token_id, device
        )
        log_probs = trainer._get_per_token_logps_and_entropies(
            model, torch.cat([prompt_ids, ids], dim=1), torch.cat([prompt_mask, mask], dim=1), ids.shape[1]
        )[0]
        return log_probs, mask


def _padded(rows: Sequence[Sequence[int]], side: str, pad_token: int, device: Any) -> tuple[Tensor, Tensor]:
    tensors = [torch.tensor(row, device=device) for row in rows]
    masks = [torch.ones(len(row), dtype=torch.long, device=device) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad_token, padding_side=side)
    return ids, pad_sequence(masks, batch_first=True, padding_side=side)


def _sum_over_rows(losses: Tensor, mask: Tensor, counts: Tensor) -> Tensor:
    """As TRL's loss_type grpo: the mean over a solution's tokens, summed over the rows that it stands for."""
    means = (losses * mask).sum(1) / mask.sum(1).clamp(min=1)
    return (means * counts).sum()
