"""`GARTrainer`: TRL's `GRPOTrainer` with rewards that see the policy's own gradients.

Only translation happens here. TRL generates, gathers, normalises and updates; this class notes the exact token ids,
asks the verifier, has the vectors formed, and writes the shaped rewards into the column of a placeholder reward
function, so that TRL's tables, logs and weights work as usual.

The methods overridden here begin with an underscore and carry no promise: `tests/contracts` checks what we rely on.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from accelerate.utils import DistributedType, gather_object
from torch import Tensor
from transformers import ProcessorMixin
from trl import GRPOConfig, GRPOTrainer

from gar.core import last_token_rewards, returns_to_go, unit_rows
from gar.data.problems import prompt_text
from gar.errors import ConfigError, DataError
from gar.integrations.trl.advantages import estimate_advantages, estimate_token_advantages, mean_advantages
from gar.integrations.trl.alignment import AnchorComparison
from gar.integrations.trl.arguments import with_method
from gar.integrations.trl.loss import PolicyLoss
from gar.integrations.trl.metrics import StepTimer, reward_metrics
from gar.integrations.trl.problems import ProblemRows
from gar.integrations.trl.reading import TokenReader
from gar.integrations.trl.refusals import check_supported, generation_passes, overrides_advantages
from gar.integrations.trl.rollouts import RolloutBatch
from gar.methods import METHODS, Method, ScoredBatch, check_settings, eligible_responses, resolve_signal
from gar.methods.base import Estimator
from gar.models.capture import capture_generation, capture_hidden, has_dropout
from gar.models.families import find_parts
from gar.records import RolloutRecord
from gar.rollouts.generate import context_length
from gar.scoring.anchors import LIKENESSES, AnchorReader, usable_anchors
from gar.scoring.judge import Judge, frozen_copy
from gar.settings import AdvantageSettings, JudgeSettings, LossSettings, RewardSettings, SignalSettings
from gar.shaping import responses_to_score
from gar.spans import SpanRule, TokenPieces, token_pieces
from gar.types import Problem, ResponseVerifier

_MOST_CAPTURED_BYTES = 2**30
"""Of hidden states kept from sampling. Beyond it, one forward pass over the scored responses runs instead."""


class GARTrainer(GRPOTrainer):
    """GRPO on verifiable problems, with the reward of a method of `gar.methods`.

    Args:
        model: A causal LM, or a Hub id or folder.
        problems: What to train on. Responses to one problem form a group.
        verifier: Judges responses, for example `gar.verify.Verifier()`.
        args: TRL's own configuration; every field works as in TRL unless refused with a reason. Fields that belong to
            the method (`Method.trl`) take its values. The others keep TRL's own defaults, not those of `gar train`
            (`arguments.DEFAULTS`): for `gar-grpo`, say, TRL's default loss averages over all tokens of the batch
            ("dapo"), and the paper's is `loss_type="grpo"`.
        processing_class: The tokenizer, padding on the left.
        method: Name of a method in `gar.methods.METHODS`.
        signal: Which tokens are scored, and how.
        reward: From verdicts and alignment to rewards.
        advantage: From rewards to advantages; unset values leave TRL's own.
        loss: What TRL's own loss does not have.
        judge: For a method with token-level rewards, whose judge is a frozen copy of `model`.
        on_rollouts: Called on the main process with the step and the records of all ranks' responses.
        reward_funcs: Further TRL reward functions, added to the method's reward (weights: `args.reward_weights`, the
            method's first); with token-level rewards, on the last token.
        eval_problems: What TRL's own evaluations (`args.eval_strategy`, `evaluate`) measure, by the outcome alone; one
            set, or several by name (TRL logs a row for each). An `eval_dataset` can hold training problems alone, each
            row its `prompt` and its number as `problem_index`.
        **kwargs: Passed to `GRPOTrainer` (callbacks, peft_config, ...).

    Raises:
        ConfigError: An unknown method, or a TRL setting under which GAR's rewards would be wrong.
        DataError: No problems, or a row of an `eval_dataset` that stands for none of them.
        ModelError: A head that the closed form does not cover.
    """

    def __init__(
        self,
        model: Any,
        *,
        problems: Sequence[Problem],
        verifier: ResponseVerifier,
        args: GRPOConfig,
        processing_class: Any,
        method: str = "gar-grpo",
        signal: SignalSettings | None = None,
        reward: RewardSettings | None = None,
        advantage: AdvantageSettings | None = None,
        loss: LossSettings | None = None,
        judge: JudgeSettings | None = None,
        on_rollouts: Callable[[int, list[RolloutRecord]], None] | None = None,
        reward_funcs: Sequence[Callable[..., Any]] = (),
        eval_problems: Sequence[Problem] | Mapping[str, Sequence[Problem]] = (),
        **kwargs: Any,
    ):
        if method not in METHODS:
            raise ConfigError(f"unknown method '{method}', expected one of {', '.join(METHODS)}")
        if not problems:
            raise DataError("there are no problems to train on")
        if isinstance(processing_class, ProcessorMixin):
            raise ConfigError("GAR works on text: processing_class must be a tokenizer, got a multimodal processor")
        self._method: Method = METHODS[method]
        problems = list(problems)
        self._problems = ProblemRows(problems)
        if eval_problems:
            if kwargs.get("eval_dataset") is not None:
                raise ConfigError("eval_problems and eval_dataset cannot both be set")
            kwargs["eval_dataset"] = self._problems.add_evaluation(eval_problems)
        self._problems.check(kwargs.get("eval_dataset"))
        self._verifier = verifier
        self._signal = resolve_signal(self._method, signal or SignalSettings())
        self._reward = reward or RewardSettings()
        self._advantage = advantage or AdvantageSettings()
        self._on_rollouts = on_rollouts
        args = with_method(args, self._method)
        self._config = args
        self._estimator: Estimator = self._advantage.estimator or self._method.estimator
        check_supported(args, self._method, self._advantage, loss or LossSettings(), problems)
        divides = args.scale_rewards != "none"
        check_settings(self._method, reward=self._reward, advantage=self._advantage, divides=divides)

        self._judge: Judge | None = None
        if self._method.token_level:
            if isinstance(model, str):
                raise ConfigError(f"{method} keeps a copy of the initial policy: give the loaded model, got '{model}'")
            initial = frozen_copy(model)  # before TRL patches its forward
            self._judge = Judge(initial, processing_class, judge or JudgeSettings(), tags=verifier.tags)

        def gar(prompts: list, **_: Any) -> list[float | None]:
            """Placeholder: TRL's column for the method's reward, filled in `_calculate_rewards`."""
            return [0.0] * len(prompts)

        super().__init__(
            model=model,
            reward_funcs=[gar, *reward_funcs],
            args=args,
            train_dataset=self._problems.training,
            processing_class=processing_class,
            **kwargs,
        )
        self._parts = find_parts(self.accelerator.unwrap_model(self.model))
        self._will_be_sharded = self.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)
        pieces = token_pieces(processing_class)
        rule = SpanRule.from_settings(
            self._signal, format=verifier.format, tags=verifier.tags, tokenizer=processing_class
        )
        self._reader = TokenReader(processing_class, rule, pieces)
        source = self._method.alignment
        if source is not None:
            problems = self._with_usable_anchors(problems, rule, pieces)
            self._problems.replace_training(problems)
        reader = AnchorReader(
            problems, processing_class, rule, pieces, source=source, seed=args.seed,
            chat_template_kwargs=cast("dict[str, Any]", self.chat_template_kwargs),
        )  # fmt: skip
        self._anchors = AnchorComparison(reader, pieces, source=source, seed=args.seed)
        self._policy_loss = PolicyLoss(self._method, loss or LossSettings())
        if self._judge is not None:
            self._judge.to(self.accelerator.device)
        self._batch: RolloutBatch | None = None
        self._scored: ScoredBatch | None = None
        self._further_rewards = torch.zeros(0)
        self._timer = StepTimer(self._metrics["train"])
        self.add_callback(self._timer)

    def _with_usable_anchors(
        self, problems: Sequence[Problem], rule: SpanRule, pieces: TokenPieces
    ) -> Sequence[Problem]:
        usable = usable_anchors(
            problems,
            self.processing_class,
            rule,
            pieces,
            context=context_length(self.model),
            chat_template_kwargs=cast("dict[str, Any]", self.chat_template_kwargs),
        )
        if not any(problem.anchors for problem in usable.problems):
            raise DataError(f"no problem is left with an expert solution that can be scored: {usable}")
        if str(usable):
            warnings.warn(str(usable), stacklevel=3)
        return usable.problems

    # The Trainer's and TRL's hooks, in the order in which a run and then one generation batch pass them.

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._train_sampler: Any = super()._get_train_sampler(dataset)
        return self._train_sampler

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """An epoch of a resumed run is that of an uninterrupted one.

        The Trainer would train one more step after the last, and TRL's sampler would begin with the order of the first
        epoch, since each `iter` draws the next one from a generator that no checkpoint holds.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        epochs_trained = kwargs["epochs_trained"]
        if kwargs["epoch"] == epochs_trained and self._train_sampler.shuffle:
            for _ in range(epochs_trained):
                torch.randperm(self._train_sampler.num_samples, generator=self._train_sampler.generator)
        super()._run_epoch(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if self._will_be_sharded:  # it is by now: accelerate shards when training begins
            self._parts = find_parts(self.accelerator.unwrap_model(self.model))
            self._will_be_sharded = False
        indices = [self._problems.index(row) for row in inputs]
        self._batch = RolloutBatch(problems=[self._problems[i] for i in indices], group_index=indices)
        output = super()._generate_and_score_completions(inputs)
        in_loss = output["completion_mask"] * output.get("tool_mask", 1)
        if self._judge is not None and self._is_training():
            with self._timer.part("gar"):
                output["advantages"] = self._token_advantages(self._judge, in_loss).to(output["advantages"])
        elif overrides_advantages(self._estimator, self._advantage):
            output["advantages"] = self._own_advantages(in_loss).to(output["advantages"])
        self._batch.advantages = mean_advantages(output["advantages"], in_loss)
        if self._is_training():
            self._report(self._batch)
        self._batch = None
        return output

    def _generate(self, prompts: list) -> tuple:
        room = _MOST_CAPTURED_BYTES if self._generates_states() else 0
        with self._timer.part("generation"), capture_generation(self._parts.backbone, most_bytes=room) as states:
            generated = super()._generate(prompts)
        assert self._batch is not None
        prompt_ids, completion_ids, token_mask = generated[:3]
        endings = [*self.eos_token_ids, self._tokenizer.pad_token_id]
        self._reader.read(self._batch, prompt_ids, completion_ids, token_mask, endings=endings)
        with self._timer.part("verification"):
            self._batch.verdicts = self._verifier.verify(
                self._batch.texts,
                [problem.answer for problem in self._batch.problems],
                prefilled_think=self._batch.prefilled,
                prompts=[prompt_text(problem.prompt) for problem in self._batch.problems],
            )
        self._choose_needed(self._batch)
        hidden = states.stacked(len(self._batch), max(map(len, completion_ids)))
        if hidden is not None and token_mask is None:
            with self._timer.part("gar"):
                self._batch.take_hidden(self._parts, hidden, first_row=0, first_column=1, settings=self._signal)
        return generated

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        return self._policy_loss.compute(self, super()._compute_loss, model, inputs)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> tuple:
        compute = partial(
            super()._get_per_token_logps_and_entropies,
            model, input_ids, attention_mask, logits_to_keep, *args, **kwargs,
        )  # fmt: skip
        if self._policy_loss.inputs is not None:
            found = compute()
            self._policy_loss.receive(found[0])
            return found
        batch = self._batch
        if (
            batch is None
            or torch.is_grad_enabled()
            or model is not self.model
            or not batch.needed_anywhere
            or batch.captured
            or not self._computes_old_logps()
        ):
            return compute()
        first_column = input_ids.shape[1] - logits_to_keep
        first_row = 0
        attended = batch.attended(attention_mask)
        batch.captured = True
        parts = self._parts.gathered()

        def receive(hidden: Tensor) -> None:
            nonlocal first_row
            with self._timer.part("gar"):
                batch.take_hidden(parts, hidden, first_row, first_column, self._signal, attended=attended)
            first_row += len(hidden)

        with capture_hidden(self._parts.backbone, receive):
            return compute()

    def _calculate_rewards(self, inputs: list, prompts: list, completions: list, completion_ids_list: list) -> Tensor:
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        assert self._batch is not None
        with self._timer.part("gar"):
            self._align(self._batch)
            self._scored = self._gather_facts(self._batch)
            method = self._method if self._is_training() else METHODS["grpo"]
            self._batch.shaped = method.shape(self._scored, self._reward)
        rewards_per_func[:, 0] = self._batch.shaped.rewards.to(rewards_per_func)
        further = rewards_per_func[:, 1:].cpu().double() * self.reward_weights[1:].cpu().double()
        self._further_rewards = further.nansum(dim=1)
        return rewards_per_func

    # What happens in between.

    def _choose_needed(self, batch: RolloutBatch) -> None:
        """Which responses need a vector: those to score, unless the method's likeness needs no model."""
        batch.prepare_means(self._parts)
        batch.needed = [False] * len(batch)
        if not self._is_training() or self._method.alignment in LIKENESSES:
            return
        to_score = self._to_score(batch)
        batch.needed = self._local(to_score).tolist()
        batch.needed_anywhere = bool(to_score.any())

    def _to_score(self, batch: RolloutBatch) -> Tensor:
        """Which responses of all ranks are scored."""
        without_anchor = self._method.alignment is None
        can_score = [
            bool(s.positions) and (without_anchor or bool(p.anchors))
            for s, p in zip(batch.sequences, batch.problems, strict=True)
        ]
        facts = self._gather_facts(batch)
        return responses_to_score(self._method, self._reward, facts, self._gather(torch.tensor(can_score)))

    def _computes_old_logps(self) -> bool:
        """TRL's own condition for a log-prob pass over the rollouts; then its hidden states are free."""
        with_vllm = self.use_vllm and self.vllm_importance_sampling_correction
        runs = self._config.gradient_accumulation_steps % generation_passes(self._config) != 0 or with_vllm
        return runs and not has_dropout(self._parts.backbone)

    def _generates_states(self) -> bool:
        """Whether sampling computes the hidden states that the vectors want, and no later pass does."""
        reads_vectors = self._method.compares_responses or self._method.alignment not in (None, *LIKENESSES)
        return (
            self._is_training()
            and reads_vectors
            and not (self.use_vllm or self.use_transformers_continuous_batching or self._computes_old_logps())
            and self.generation_config.cache_implementation != "quantized"  # its states are approximate
            and self.accelerator.distributed_type not in (DistributedType.FSDP, DistributedType.DEEPSPEED)
            and not has_dropout(self._parts.backbone)
        )

    def _align(self, batch: RolloutBatch) -> None:
        """What the method's arithmetic reads: alignments, or the vectors of all responses."""
        batch.alignment = torch.full((len(batch),), torch.nan, dtype=torch.float64)
        if not self._is_training():
            return
        source = self._method.alignment
        if source in LIKENESSES:
            wanted = self._local(self._to_score(batch)).tolist()
            batch.alignment = self._anchors.likenesses(batch, wanted)
        elif batch.needed_anywhere:
            sequences, groups = self._anchors.sequences(batch)
            with self.accelerator.autocast():  # as TRL's own passes, whose hidden states may be captured
                anchor_means = batch.compute_missing(self._parts.gathered(), sequences, self._signal, self._most)
            if source is not None:
                batch.alignment = self._anchors.cosines(batch, anchor_means, groups)

    def _gather_facts(self, batch: RolloutBatch) -> ScoredBatch:
        """Facts about the responses of all ranks, on the CPU."""
        flags = torch.tensor([[v.verified, v.well_formatted] for v in batch.verdicts])
        unknown = torch.full((len(batch),), torch.nan, dtype=torch.float64)
        gathered = self._gather(batch.alignment if len(batch.alignment) else unknown)
        compared = self._is_training() and self._method.compares_responses and len(batch.alignment)
        everyone = self._gather(flags)
        return ScoredBatch(
            verified=everyone[:, 0],
            well_formatted=everyone[:, 1],
            group_index=self._gather(torch.tensor(batch.group_index)),
            alignment=gathered,
            scored=gathered.isfinite(),
            vectors=self._gather(unit_rows(batch.means)) if compared else None,
        )

    def _own_advantages(self, in_loss: Tensor) -> Tensor:
        assert self._batch is not None
        assert self._batch.shaped is not None
        assert self._scored is not None
        rewards = self._batch.shaped.rewards * float(self.reward_weights[0]) + self._further_rewards
        if self._advantage.baseline == "none":
            return self._local(rewards)
        advantages = estimate_advantages(
            rewards,
            self._gather(in_loss.sum(1)),
            self._scored.group_index,
            estimator=self._estimator,
            scale="std" if self._config.scale_rewards == "group" else "none",
            settings=self._advantage,
        )
        return self._local(advantages)

    def _token_advantages(self, judge: Judge, in_loss: Tensor) -> Tensor:
        """Advantages of single tokens of this rank, [responses, tokens], normalised over groups on all ranks.

        Further reward functions say nothing of single tokens: theirs is the reward of the last one, as the outcome is.
        """
        assert self._batch is not None
        assert self._batch.shaped is not None
        assert self._scored is not None
        mask = in_loss.bool()
        found = judge.token_rewards(
            [problem.prompt for problem in self._batch.problems],
            [sequence.ids for sequence in self._batch.sequences],
            self._local(self._batch.shaped.outcomes).to(mask.device),
            self._local(self._batch.shaped.penalties).to(mask.device),
            mask,
        )
        further = last_token_rewards(self._local(self._further_rewards).to(mask.device), mask)
        rewards = found.rewards * float(self.reward_weights[0]) + further
        agreement = (found.log_odds > 0).double().where(found.log_odds.isfinite(), torch.nan)
        for name, values in (("judge_effective_tokens", found.effective_tokens), ("judge_agreement", agreement)):
            self._metrics["train"][f"gar/{name}"].append(float(self._gather(values).nanmean()))
        values, masks = (
            self._gather(cast(Tensor, self.accelerator.pad_across_processes(tensor, dim=1)))
            for tensor in (returns_to_go(rewards, mask), mask)
        )
        advantages = estimate_token_advantages(values, masks, self._scored.group_index, settings=self._advantage)
        return self._local(advantages)[:, : mask.shape[1]]

    def _report(self, batch: RolloutBatch) -> None:
        """Metrics, the same on every rank, and the records of all ranks on the main process."""
        assert self._scored is not None
        assert batch.shaped is not None
        eligible = eligible_responses(self._scored, self._reward)
        offset = self.accelerator.process_index * len(batch)
        rows = batch.records(step=self.state.global_step + 1, batch=self._scored, eligible=eligible, offset=offset)
        rows = gather_object(rows)
        for name, value in reward_metrics(self._scored, eligible, batch.shaped, rows).items():
            self._metrics["train"][name].append(value)
        if self._on_rollouts is not None and self.accelerator.is_main_process:
            self._on_rollouts(self.state.global_step + 1, rows)

    def _is_training(self) -> bool:
        return self.model is not None and self.model.training

    def _gather(self, values: Tensor) -> Tensor:
        return cast(Tensor, self.accelerator.gather(values.to(self.accelerator.device))).cpu()

    def _most(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return int(self._gather(torch.tensor([number])).max())

    def _local(self, values: Tensor) -> Tensor:
        count = len(values) // self.accelerator.num_processes
        return values[self.accelerator.process_index * count :][:count]
