"""`GARTrainer`: TRL's `GRPOTrainer` with rewards that see the policy's own gradients.

Only translation happens here. TRL generates, gathers, normalises and updates; this class notes the exact token ids,
asks the verifier, has the vectors formed, and writes the shaped rewards into the column of a placeholder reward
function, so that TRL's tables, logs and weights work as usual.

The methods overridden here begin with an underscore and carry no promise: `tests/contracts` checks what we rely on.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from accelerate.utils import DistributedType, gather_object
from torch import Tensor
from transformers import ProcessorMixin
from trl import GRPOConfig, GRPOTrainer

from gar.core import unit_rows
from gar.data.problems import prompt_text
from gar.errors import ConfigError, DataError
from gar.integrations.trl.alignment import AnchorComparison
from gar.integrations.trl.arguments import with_method
from gar.integrations.trl.expert import ExpertLoss
from gar.integrations.trl.initial import InitialPolicy
from gar.integrations.trl.loss import PolicyLoss
from gar.integrations.trl.metrics import StepTimer
from gar.integrations.trl.problems import ProblemRows
from gar.integrations.trl.ranks import refuse_data_parallel
from gar.integrations.trl.refusals import TRL, check_supported, generation_passes, overrides_advantages
from gar.integrations.trl.rollouts import MOST_CAPTURED_BYTES, RolloutBatch, mean_advantages
from gar.integrations.trl.token_advantages import judged_advantages, spread_bonuses
from gar.methods import Method, find_method
from gar.models.capture import capture_generation, capture_hidden, has_dropout
from gar.models.families import ModelParts, find_parts
from gar.records import RolloutRecord
from gar.rollouts.generate import context_length
from gar.scoring.anchor_cache import AnchorCache
from gar.scoring.anchors import LIKENESSES, AnchorReader, usable_anchors
from gar.scoring.judge import Judge, frozen_copy
from gar.settings import AdvantageSettings, JudgeSettings, LossSettings, RewardSettings, SignalSettings
from gar.shaping import RewardTable, ShapedTable, plan_shaping
from gar.spans import SequenceReader, SpanRule
from gar.types import Problem, ResponseVerifier


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
        method: Name of a method in `gar.methods.METHODS`, or a method of your own.
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
        method: str | Method = "gar-grpo",
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
        _check_inputs(problems, processing_class)
        self._method = find_method(method) if isinstance(method, str) else method
        self._loss = loss or LossSettings()
        self._on_rollouts = on_rollouts
        self._verifier = verifier
        self._problems = ProblemRows(list(problems))
        self._add_evaluation(eval_problems, kwargs)
        args = self._config = with_method(args, self._method)
        given = {"signal": signal, "reward": reward, "advantage": advantage, "loss": loss, "judge": judge}
        self._shaping = plan_shaping(
            TRL,
            self._method,
            {name: section for name, section in given.items() if section is not None},
            divides=args.scale_rewards != "none",
        )
        check_supported(args, self._shaping, self._loss, problems)
        self._judge = self._make_judge(model, processing_class, judge) if self._method.token_level else None
        new_adapter = kwargs.get("peft_config") is not None
        self._initial = InitialPolicy(model, args, new_adapter=new_adapter) if self._shaping.reads_initial else None

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
        refuse_data_parallel(self.args)
        self._prepare_signal(problems)
        self._policy_loss = PolicyLoss(self._method, self._loss)
        self._expert = self._make_expert_loss() if self._method.expert_loss else None
        if self._judge is not None:
            self._judge.to(self.accelerator.device)
        self._batch: RolloutBatch | None = None
        self._further_rewards = torch.zeros(0)
        self._timer = StepTimer(self._metrics["train"])
        self.add_callback(self._timer)

    def _add_evaluation(self, problems: Any, kwargs: dict[str, Any]) -> None:
        """Make a data set of the evaluation problems, or check the one that is given."""
        if problems:
            if kwargs.get("eval_dataset") is not None:
                raise ConfigError("eval_problems and eval_dataset cannot both be set")
            kwargs["eval_dataset"] = self._problems.add_evaluation(problems)
        self._problems.check(kwargs.get("eval_dataset"))

    def _make_judge(self, model: Any, tokenizer: Any, settings: JudgeSettings | None) -> Judge:
        if isinstance(model, str):
            raise ConfigError(
                f"{self._method.name} keeps a copy of the initial policy: give the loaded model, got '{model}'"
            )
        initial = frozen_copy(model)  # before TRL patches its forward
        return Judge(initial, tokenizer, settings or JudgeSettings(), tags=self._verifier.tags)

    def _make_expert_loss(self) -> ExpertLoss:
        if self._method.expert_loss == "member" and len(self.reward_funcs) > 1:
            raise ConfigError(
                f"{self._method.name} compares responses with an expert solution, which only the verifier rewards. "
                f"Leave out the {len(self.reward_funcs) - 1} further reward_funcs, or take chord."
            )
        end = cast(int, self._tokenizer.eos_token_id)
        return ExpertLoss(self._method, self._reader, self._verifier, self._shaping.reward, end_token=end)

    @property
    def copied_bytes(self) -> int:
        """Memory of the frozen copy of the initial policy that `signal.policy` initial may need."""
        return 0 if self._initial is None else self._initial.copied_bytes

    def _prepare_signal(self, problems: Sequence[Problem]) -> None:
        """Find the head, and the anchors that can be scored."""
        tokenizer, verifier, source = self.processing_class, self._verifier, self._method.alignment
        template = cast("dict[str, Any]", self.chat_template_kwargs)
        self._parts = find_parts(self.accelerator.unwrap_model(self.model))
        if self._initial is not None:
            self._initial.find(self, self._parts)
        self._will_be_sharded = self.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)
        rule = SpanRule.from_settings(
            self._shaping.signal, format=verifier.format, tags=verifier.tags, tokenizer=tokenizer
        )
        self._reader = SequenceReader(tokenizer, rule, context=context_length(self.model))
        if source is not None:
            usable = usable_anchors(problems, tokenizer, self._reader, chat_template_kwargs=template)
            if not any(problem.anchors for problem in usable.problems):
                raise DataError(f"no problem is left with an expert solution that can be scored: {usable}")
            if str(usable):
                warnings.warn(str(usable), stacklevel=3)
            problems = usable.problems
            self._problems.replace_training(problems)
        seed = self._config.seed
        self._comparison = AnchorComparison(
            source=source,
            signal=self._shaping.signal,
            anchors=AnchorReader(
                problems, tokenizer, self._reader, source=source, seed=seed, chat_template_kwargs=template
            ),
            reader=self._reader,
            seed=seed,
            most=self._most,
            cache=AnchorCache(self._initial.cache_name(self._shaping.signal), self._parts.width)
            if self._initial
            else None,
        )

    # The Trainer's and TRL's hooks, in the order in which a run and then one generation batch pass them.

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._train_sampler: Any = super()._get_train_sampler(dataset)
        return self._train_sampler

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """A checkpoint holds the matrix of a tied head once, which the Trainer reports as a missing key."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

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
        self._batch = RolloutBatch(
            problems=[self._problems[i] for i in indices],
            group_index=indices,
            rank=self.accelerator.process_index,
        )
        output = super()._generate_and_score_completions(inputs)
        in_loss = output["completion_mask"] * output.get("tool_mask", 1)
        if self._judge is not None and self._is_training():
            with self._timer.part("gar"):
                judged = judged_advantages(
                    self, self._judge, self._batch, self._further_rewards, in_loss, self._shaping
                )
            output["advantages"] = judged.to(output["advantages"])
        elif overrides_advantages(self._shaping):
            output["advantages"] = self._own_advantages(self._batch, in_loss).to(output["advantages"])
        if self._expert is not None and self._is_training():
            output |= self._expert.inputs(self, self._batch, in_loss)
        self._batch.advantages = mean_advantages(output["advantages"], in_loss)
        if self._is_training():
            self._report(self._batch)
        self._batch = None
        return output

    def _generate(self, prompts: list) -> tuple:
        room = MOST_CAPTURED_BYTES if self._generates_states() else 0
        with self._timer.part("generation"), capture_generation(self._parts.backbone, most_bytes=room) as states:
            generated = super()._generate(prompts)
        assert self._batch is not None
        prompt_ids, completion_ids, token_mask = generated[:3]
        endings = [*self.eos_token_ids, self._tokenizer.pad_token_id]
        self._batch.read(self._reader, prompt_ids, completion_ids, token_mask, endings=endings)
        with self._timer.part("verification"):
            self._batch.verdicts = self._verifier.verify(
                self._batch.texts,
                [problem.answer for problem in self._batch.problems],
                prefilled_think=self._batch.prefilled,
                prompts=[prompt_text(problem.prompt) for problem in self._batch.problems],
            )
        shaping = self._shaping if self._is_training() else self._shaping.outcome_alone()
        self._batch.table = RewardTable(shaping, gather_object(self._batch.facts(self._reader)))
        self._batch.prepare_means(self._parts)
        hidden = states.stacked(len(self._batch), max(map(len, completion_ids)))
        if hidden is not None and token_mask is None:
            with self._timer.part("gar"):
                self._batch.take_hidden(self._parts, hidden, 0, 1, self._shaping.signal)
        return generated

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss = self._policy_loss.compute(self, super()._compute_loss, model, inputs)
        return self._expert.add(self, model, inputs, loss) if self._expert and self._is_training() else loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> tuple:
        compute = partial(
            super()._get_per_token_logps_and_entropies,
            model, input_ids, attention_mask, logits_to_keep, *args, **kwargs,
        )  # fmt: skip
        if self._policy_loss.inputs is not None:
            result = compute()
            self._policy_loss.receive(result[0])
            return result
        batch = self._batch
        if (
            batch is None
            or torch.is_grad_enabled()
            or not self._wants_vectors(batch)
            or batch.captured
            or not self._passes_by(model)
        ):
            return compute()
        first_column = input_ids.shape[1] - logits_to_keep
        first_row = 0
        attended = batch.attended(attention_mask)
        batch.captured = True
        parts = self._signal_parts.gathered()

        def receive(hidden: Tensor) -> None:
            nonlocal first_row
            with self._timer.part("gar"):
                batch.take_hidden(parts, hidden, first_row, first_column, self._shaping.signal, attended=attended)
            first_row += len(hidden)

        with capture_hidden(parts.backbone, receive):
            return compute()

    def _calculate_rewards(self, inputs: list, prompts: list, completions: list, completion_ids_list: list) -> Tensor:
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        assert self._batch is not None
        with self._timer.part("gar"):
            self._batch.shaped = self._shape(self._batch)
        rewards_per_func[:, 0] = self._batch.shaped.rewards.to(rewards_per_func)
        further = rewards_per_func[:, 1:].cpu().double() * self.reward_weights[1:].cpu().double()
        self._further_rewards = further.nansum(dim=1)
        return rewards_per_func

    # What happens in between.

    def _wants_vectors(self, batch: RolloutBatch) -> bool:
        """Whether any rank needs a vector; the others then take part."""
        assert batch.table is not None
        return self._is_training() and self._method.reads_vectors and bool(batch.table.needed.any())

    @property
    def _signal_parts(self) -> ModelParts:
        """The parts of the policy whose vectors count."""
        return self._parts if self._initial is None else self._initial.parts

    @contextmanager
    def _signal_passes(self) -> Iterator[ModelParts]:
        """For passes of our own: these parts, with the head gathered."""
        switched = nullcontext() if self._initial is None else self._initial.on()
        with self.accelerator.autocast(), switched:  # as TRL's own passes, whose hidden states may be captured
            yield self._signal_parts.gathered()

    def _passes_by(self, model: Any) -> bool:
        """Whether a pass of TRL's own over the rollouts has the hidden states that count."""
        if self._initial is not None:
            return self._initial.is_run_by(model)
        return model is self.model and self._computes_old_logps()

    def _computes_old_logps(self) -> bool:
        """TRL's own condition for a log-prob pass over the rollouts; then its hidden states are free."""
        with_vllm = self.use_vllm and self.vllm_importance_sampling_correction
        runs = self._config.gradient_accumulation_steps % generation_passes(self._config) != 0 or with_vllm
        return runs and not has_dropout(self._parts.backbone)

    def _generates_states(self) -> bool:
        """Whether sampling computes the hidden states that the vectors want, and no later pass does."""
        return (
            self._is_training()
            and self._method.reads_vectors
            and self._initial is None
            and not (self.use_vllm or self.use_transformers_continuous_batching or self._computes_old_logps())
            and self.generation_config.cache_implementation != "quantized"  # its states are approximate
            and self.accelerator.distributed_type not in (DistributedType.FSDP, DistributedType.DEEPSPEED)
            and not has_dropout(self._parts.backbone)
        )

    def _shape(self, batch: RolloutBatch) -> ShapedTable:
        """Rewards of all ranks, from the alignments or vectors that the method's arithmetic reads."""
        assert batch.table is not None
        alignment = torch.full((len(batch),), torch.nan, dtype=torch.float64)
        vectors = None
        if self._wants_vectors(batch):
            with self._signal_passes() as parts:
                alignment = self._comparison.alignment(batch, parts)
        elif self._is_training() and self._method.alignment in LIKENESSES:
            alignment = self._comparison.likenesses(batch)
        if self._is_training() and self._method.compares_responses:
            vectors = self._gather(unit_rows(batch.means))
        return batch.table.shape(self._gather(alignment), vectors=vectors)

    def _own_advantages(self, batch: RolloutBatch, in_loss: Tensor) -> Tensor:
        rewards = batch.rewarded.rewards * float(self.reward_weights[0]) + self._further_rewards
        scale = "std" if self._config.scale_rewards == "group" else "none"
        counts = self._gather(in_loss.sum(1))
        groups = batch.rewarded.batch.group_index
        outcome = self._shaping.advantages(rewards, groups, token_counts=counts, scale=scale)
        batch.shaped, advantages = batch.rewarded.add_bonuses(outcome)
        if self._method.token_bonus and self._is_training():
            return self._spread(batch, outcome[batch.here], in_loss.bool().cpu())
        return advantages[batch.here]

    def _spread(self, batch: RolloutBatch, outcome: Tensor, mask: Tensor) -> Tensor:
        """Advantages of single tokens of this rank: each bonus goes where its alignment comes from."""
        bonuses = batch.rewarded.shaped.bonuses[batch.here]
        with self._timer.part("gar"), self._signal_passes() as parts:
            shares = batch.shares(parts, bonuses.nonzero()[:, 0].tolist(), self._shaping.signal, self._most)
        advantages, effective = spread_bonuses(outcome, bonuses, shares, mask)
        self.log_mean("bonus_effective_tokens", effective)
        return advantages

    def _report(self, batch: RolloutBatch) -> None:
        """Metrics, the same on every rank, and the records of all ranks on the main process."""
        rows = gather_object(batch.records(step=self.state.global_step + 1))
        metrics = batch.rewarded.metrics()
        metrics["gar/advantage_abs_mean"] = sum(abs(row.advantage) for row in rows) / len(rows)
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        if self._on_rollouts is not None and self.accelerator.is_main_process:
            self._on_rollouts(self.state.global_step + 1, rows)

    def _is_training(self) -> bool:
        return self.model is not None and self.model.training

    def log_mean(self, name: str, values: Tensor) -> None:
        """Log the mean over all ranks as `gar/NAME`, NaN left out."""
        self._metrics["train"][f"gar/{name}"].append(float(self._gather(values).nanmean()))

    def _gather(self, values: Tensor) -> Tensor:
        """The values of all ranks, on the CPU."""
        return cast(Tensor, self.accelerator.gather(values.to(self.accelerator.device))).cpu()

    def _most(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return int(self._gather(torch.tensor([number])).max())


def _check_inputs(problems: Sequence[Problem], tokenizer: Any) -> None:
    if not problems:
        raise DataError("there are no problems to train on")
    if isinstance(tokenizer, ProcessorMixin):
        raise ConfigError("GAR works on text: processing_class must be a tokenizer, got a multimodal processor")
