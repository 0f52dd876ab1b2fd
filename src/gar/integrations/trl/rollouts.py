"""The responses that TRL samples at one time, on one rank, from their tokens to their advantages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gar.models.families import ModelParts
from gar.models.rope import RopeLengths
from gar.reader import Reader
from gar.records import RolloutRecord
from gar.records.rollouts import response_record
from gar.response import Anchors, Response
from gar.scoring.forward import means_from_hidden, step_means
from gar.settings import SignalSettings
from gar.step import Step
from gar.types import Problem, Status, Verdict


@dataclass(kw_only=True)
class RolloutBatch:
    """This rank's responses in TRL's order. Each of TRL's hooks adds what it knows of them for the next one.

    Attributes:
        problems: The problem of each response.
        group_index: The number of each response's problem.
        rows: The data set's row for each response, as TRL passes it to reward functions.
        responses: Tokens and texts, then verdicts.
        step: The responses of all ranks, once they are verified.
        num_passed: Number of responses with hidden states from TRL's forward passes.
        means: The mean vectors that are known, by the position of their response.
        columns: TRL's rewards, [responses of all ranks, functions], NaN for None.
        further_rewards: What the other columns give, with their weights, float64 [responses of all ranks].
        total_rewards: What all columns give.
        advantages: One per response.
    """

    problems: list[Problem]
    group_index: list[int]
    rows: list[dict[str, Any]] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    step: Step = field(init=False)
    num_passed: int = 0
    means: dict[int, Tensor] = field(default_factory=dict)
    columns: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    further_rewards: Tensor = field(default_factory=lambda: torch.zeros(0))
    total_rewards: Tensor = field(default_factory=lambda: torch.zeros(0))
    advantages: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.problems)

    def read(
        self,
        reader: Reader,
        anchors: Mapping[int, Anchors],
        prompt_ids: Sequence[list[int]],
        completion_ids: Sequence[list[int]],
        token_mask: Any,
        *,
        endings: Sequence[Any],
    ) -> None:
        """Read the responses from their tokens. Those without one of `endings` are truncated.

        `anchors` are by group. `token_mask` is per response, as in `gar.reader.policy_turns`, or None.
        """
        for i, (prompt, ids) in enumerate(zip(prompt_ids, completion_ids, strict=True)):
            group = self.group_index[i]
            found = anchors.get(group) or Anchors.unread(len(self.problems[i].anchors))
            mask = None if token_mask is None else token_mask[i]
            truncated = not ids or ids[-1] not in endings
            read = reader.read(prompt, ids, mask=mask, anchors=found, group_index=group, truncated=truncated)
            self.responses.append(read)

    def add_fields(self, fields: dict[str, Any]) -> None:
        """Add what a rollout function returned to the rows, as TRL does before it calls reward functions."""
        for name, values in fields.items():
            values = values if isinstance(values, list) else [values] * len(self)
            for row, value in zip(self.rows, values, strict=False):
                row[name] = value

    def take_decisions(self, right: Sequence[bool | None]) -> None:
        """Set verdicts that reward functions gave. A response with None is not scored."""
        for i, decision in enumerate(right):
            response = replace(self.responses[i], verdict=Verdict.decided(decision))
            if decision is None:
                response = replace(response, sequence=replace(response.sequence, positions=[]))
            self.responses[i] = response

    def fill_column(self, column: int, weights: Tensor, *, adds: bool) -> None:
        """Put the shaped rewards into their column. With `adds`, leave out the outcome, which is in another column."""
        own = self.step.shaped.rewards
        if adds:
            own = own - self.step.shaped.outcomes
            own[torch.tensor([fact.verdict.status == Status.UNPARSED for fact in self.step.facts])] = torch.nan
        self.columns[:, column] = own.to(self.columns)
        further = self.columns.cpu().double() * weights.cpu().double()
        further[:, column] = 0.0
        self.further_rewards = further.nansum(dim=1)
        self.total_rewards = own.nan_to_num() * float(weights[column]) + self.further_rewards

    def attended(self, attention_mask: Tensor, rope: RopeLengths) -> list[bool]:
        """Which responses a pass reads whole and with their own rotary frequencies. TRL may mask truncated ones."""
        lengths = [response.sequence.num_tokens for response in self.responses]
        whole = (attention_mask.sum(1).cpu() == torch.tensor(lengths)).tolist()
        width = attention_mask.shape[1]
        return [read and rope.fits(length, width) for read, length in zip(whole, lengths, strict=True)]

    def take_hidden(
        self,
        parts: ModelParts,
        settings: SignalSettings,
        first_column: int,
        hidden: Tensor,
        *,
        attended: Sequence[bool] | None = None,
    ) -> None:
        """Compute the needed means from hidden states of the next rows. Skips rows not `attended` (None: all are)."""
        first, needed = self.num_passed, self.step.needed[self.step.here].tolist()
        self.num_passed += len(hidden)
        members = [i for i in range(first, self.num_passed) if needed[i] and (attended is None or attended[i])]
        if members:
            sequences, starts = [self.responses[i].sequence for i in members], [first_column] * len(members)
            states = hidden[[i - first for i in members]]
            found = means_from_hidden(parts, states, sequences, starts, settings)
            self.means |= zip(members, found, strict=True)

    def compute_missing(
        self, parts: ModelParts, settings: SignalSettings, most: Callable[[int], int]
    ) -> tuple[Tensor, Tensor]:
        """Run the passes that are still needed. All ranks run equally many (`most`).

        Returns:
            Mean vectors of the step's `sequences` and of its `anchors`.
        """
        missing = [i for i in self.step.members if i not in self.means]
        sequences = [self.responses[i].sequence for i in missing]
        found, anchors = step_means(parts, sequences, self.step.anchors, settings, most=most)
        self.means |= zip(missing, found, strict=True)
        members = [self.means[i] for i in self.step.members]
        return torch.stack(members) if members else found, anchors

    def records(self, *, step: int) -> list[RolloutRecord]:
        """One row per response of this rank."""
        means = torch.stack([*self.means.values()]) if self.means else torch.zeros(0, 0)
        norms = dict(zip(self.means, means.norm(dim=-1).tolist(), strict=True))
        rows = []
        for i, (problem, response) in enumerate(zip(self.problems, self.responses, strict=True)):
            place, group = self.step.here.start + i, response.group_index
            rows.append(
                RolloutRecord(
                    step=step,
                    **response_record(problem, response),
                    group_index=group,
                    response_index=int((self.step.group_index[:place] == group).sum()),
                    **self.step.values(place),
                    anchor=bool(response.anchors.usable),
                    advantage=self.advantages[i],
                    num_scored_tokens=len(response.sequence.positions),
                    signal_norm=norms.get(i),
                    prompt_tokens=len(response.sequence.context_ids),
                )
            )
        return rows


def mean_advantages(advantages: Tensor, in_loss: Tensor) -> list[float]:
    """For the records: the advantage of each response, or the mean over its tokens in the loss."""
    if advantages.dim() == 1:
        return advantages.tolist()
    counted = in_loss.to(advantages)
    return ((advantages * counted).sum(1) / counted.sum(1).clamp(min=1)).tolist()


def gated_advantages(gate: Callable[..., Tensor], log_probs: Tensor, inputs: dict[str, Any]) -> Tensor:
    """Advantages with a method's gate, which TRL's loss does not have, like `log_probs` [responses, tokens]."""
    advantages = inputs["advantages"]
    advantages = advantages[:, None] if advantages.dim() == 1 else advantages
    now = log_probs.detach()
    old = inputs.get("old_per_token_logps")
    return advantages * gate(now, now if old is None else old, advantages)
