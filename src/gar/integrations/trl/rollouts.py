"""The state of one generation batch: what is known about each response, from its tokens to its advantage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gar.data.problems import prompt_text
from gar.models.families import ModelParts, evaluation_mode
from gar.records import RolloutRecord
from gar.scoring.anchors import AnchorReader
from gar.scoring.forward import means_from_hidden, num_forwards, signal_means
from gar.sequences import NO_ANCHORS, AnchorSequences, SequenceReader, TokenSequence
from gar.settings import SignalSettings
from gar.step import Row, Shaped, Step, read_row
from gar.types import Problem, ResponseVerifier, Status, Verdict


@dataclass(kw_only=True)
class RolloutBatch:
    """Responses of this rank, in TRL's order, filled in stage by stage.

    Attributes:
        problems: The problem of each response.
        group_index: Their numbers.
        rows: The rows of the data set, as TRL's reward functions get their columns.
        sequences: Tokens and scored positions.
        texts: The verifier's view of the responses.
        truncated: Whether a response was cut off.
        step: The responses of all ranks, once they are verified.
        num_passed: Number of responses with hidden states from TRL's forward passes.
        means: One mean vector per response, 0 if `has_means` is False.
        shaped: The responses of all ranks with their rewards, once there are any.
        columns: TRL's rewards, [responses of all ranks, functions], NaN for None.
        own_rewards: What the method gives, without its weight, float64 [responses of all ranks].
        further_rewards: What the other columns give, with their weights, float64 [responses of all ranks].
        advantages: One per response.
    """

    problems: list[Problem]
    group_index: list[int]
    rows: list[dict[str, Any]] = field(default_factory=list)
    sequences: list[TokenSequence] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    step: Step = field(init=False)
    num_passed: int = 0
    means: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    has_means: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    shaped: Shaped = field(init=False)
    columns: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    own_rewards: Tensor = field(default_factory=lambda: torch.zeros(0))
    further_rewards: Tensor = field(default_factory=lambda: torch.zeros(0))
    advantages: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def here(self) -> slice:
        """Positions of this rank's responses among all ranks' responses."""
        return self.step.here

    def read(
        self,
        reader: SequenceReader,
        prompt_ids: Sequence[list[int]],
        completion_ids: Sequence[list[int]],
        token_mask: Any,
        *,
        endings: Sequence[Any],
    ) -> None:
        """Read texts and scored positions from the tokens, and which responses lack one of `endings`.

        `token_mask` is per response, as in `gar.sequences.policy_turns`, or None.
        """
        for i, (prompt, ids) in enumerate(zip(prompt_ids, completion_ids, strict=True)):
            mask = None if token_mask is None else token_mask[i]
            self.sequences.append(reader.response(prompt, ids, mask=mask))
            self.texts.append(reader.text(ids, mask))
            self.truncated.append(not ids or ids[-1] not in endings)

    def add_fields(self, fields: dict[str, Any]) -> None:
        """Add what a rollout function returned to the rows, as TRL does before it calls reward functions."""
        for name, values in fields.items():
            values = values if isinstance(values, list) else [values] * len(self)
            for row, value in zip(self.rows, values, strict=False):
                row[name] = value

    def judge(self, verifier: ResponseVerifier, reader: SequenceReader) -> None:
        """Set the verifier's verdicts."""
        self.verdicts = verifier.verify(
            self.texts,
            [problem.answer for problem in self.problems],
            prefilled_think=[reader.prefilled(sequence.context_ids) for sequence in self.sequences],
            prompts=[prompt_text(problem.prompt) for problem in self.problems],
        )

    def take_decisions(self, right: Sequence[bool | None]) -> None:
        """Set verdicts that reward functions gave. A response with None is not scored."""
        for i, decision in enumerate(right):
            status = Status.UNPARSED if decision is None else Status.OK if decision else Status.WRONG
            verified = bool(decision)
            self.verdicts.append(Verdict(status=status, grade=float(verified), verified=verified, well_formatted=True))
            if decision is None:
                self.sequences[i] = replace(self.sequences[i], positions=[])

    def fill_column(self, column: int, weights: Tensor, *, adds: bool) -> None:
        """Put the shaped rewards into their column. With `adds` without the outcome, which another column has."""
        own = self.shaped.rewards
        if adds:
            own = own - self.shaped.shaped.outcomes
            own[torch.tensor([fact.status == Status.UNPARSED for fact in self.step.facts])] = torch.nan
        self.columns[:, column] = own.to(self.columns)
        further = self.columns.cpu().double() * weights.cpu().double()
        further[:, column] = 0.0
        self.own_rewards, self.further_rewards = own, further.nansum(dim=1)

    def step_rows(self, reader: SequenceReader, anchors: AnchorReader | None) -> list[Row]:
        """The responses with their verdicts and, given a reader of anchors, their problems' anchors."""
        of_group: dict[int, AnchorSequences] = {}
        rows = []
        for i, (group, sequence) in enumerate(zip(self.group_index, self.sequences, strict=True)):
            if anchors is not None and group not in of_group:
                of_group[group] = AnchorSequences(tuple(anchors.sequences(group, sequence.context_ids)))
            verdict, cut = self.verdicts[i], self.truncated[i]
            found = of_group.get(group, NO_ANCHORS)
            count = len(self.problems[i].anchors) if anchors is None else None
            rows.append(read_row(reader, verdict, sequence, found, group_index=group, num_anchors=count, truncated=cut))
        return rows

    def prepare_means(self, parts: ModelParts) -> None:
        """Make room for one mean vector per response."""
        self.means = torch.zeros(len(self), parts.width, device=parts.device)
        self.has_means = torch.zeros(len(self), dtype=torch.bool)

    def attended(self, attention_mask: Tensor, switch_length: float) -> list[bool]:
        """Which responses a pass reads completely, since TRL may hide truncated ones, and by their own frequencies."""
        lengths = torch.tensor([sequence.num_tokens for sequence in self.sequences])
        alike = (lengths > switch_length) == (attention_mask.shape[1] > switch_length)
        return (alike & (attention_mask.sum(1).cpu() == lengths)).tolist()

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
        first, needed = self.num_passed, self.step.needed[self.here].tolist()
        self.num_passed += len(hidden)
        members = [i for i in range(first, self.num_passed) if needed[i] and (attended is None or attended[i])]
        if members:
            sequences, starts = [self.sequences[i] for i in members], [first_column] * len(members)
            self.means[members] = means_from_hidden(
                parts, hidden[[i - first for i in members]], sequences, starts, settings
            )
            self.has_means[members] = True

    def compute_missing(self, parts: ModelParts, settings: SignalSettings, most: Callable[[int], int]) -> Tensor:
        """Run the passes that are still needed, as many as the rank with the `most`. Returns [sequences, hidden]."""
        anchors = self.step.anchors
        missing = [i for i in self.step.members if not self.has_means[i]]
        sequences = [*(self.sequences[i] for i in missing), *anchors]
        keep_fractions = [1.0] * len(missing) + [settings.anchor_keep_fraction] * len(anchors)
        count = num_forwards(parts, sequences, settings.max_batch_tokens)
        num_idle = most(count) - count
        means = signal_means(parts, sequences, settings, keep_fractions=keep_fractions)
        _run_idle_forwards(parts, num_idle)
        self.means[missing] = means[: len(missing)]
        self.has_means[missing] = True
        return torch.cat([self.means[self.step.members], means[len(missing) :]])

    def records(self, *, step: int) -> list[RolloutRecord]:
        """One row per response of this rank."""
        table, rewards = self.shaped, self.shaped.shaped
        norms = self.means.norm(dim=-1).tolist()
        rows = []
        for i, problem in enumerate(self.problems):
            sequence, verdict, group = self.sequences[i], self.verdicts[i], self.group_index[i]
            place = self.here.start + i
            rows.append(
                RolloutRecord(
                    step=step,
                    problem_id=problem.id,
                    group_index=group,
                    response_index=int((table.batch.group_index[:place] == group).sum()),
                    prompt=problem.prompt if isinstance(problem.prompt, str) else str(problem.prompt),
                    response=self.texts[i],
                    gold=problem.answer,
                    answer=verdict.answer,
                    status=verdict.status,
                    verified=verdict.verified,
                    well_formatted=verdict.well_formatted,
                    eligible=bool(table.eligible[place]),
                    anchor=bool(problem.anchors),
                    alignment=float(table.batch.alignment[place]) if table.batch.scored[place] else None,
                    bonus=float(rewards.bonuses[place]),
                    penalty=float(rewards.penalties[place]),
                    reward=float(rewards.rewards[place]),
                    advantage=self.advantages[i],
                    num_tokens=len(sequence.ids),
                    truncated=self.truncated[i],
                    num_scored_tokens=len(sequence.positions),
                    signal_norm=norms[i] if self.has_means[i] else None,
                    prompt_tokens=len(sequence.context_ids),
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


@torch.no_grad()
def _run_idle_forwards(parts: ModelParts, count: int) -> None:
    """Join the passes that another rank makes more than this one."""
    with evaluation_mode(parts.backbone):
        for _ in range(count):
            parts.backbone(input_ids=torch.zeros(1, 1, dtype=torch.long, device=parts.device), use_cache=False)
