"""`GARTrainer`: TRL's `GRPOTrainer` with gradient-aligned rewards.

It records the exact token ids, computes vectors, and writes the method's rewards into the column of a placeholder
function, so that TRL's tables, logs and weights work as usual. `contract` checks TRL's private methods.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor
from trl import GRPOConfig

from gar.errors import expect
from gar.integrations.trl.arguments import PLAIN_TRAINER, TRL, check_processor, trl_flags, with_method
from gar.integrations.trl.callbacks import StepTimer, completions_printed
from gar.integrations.trl.contract import check_contract
from gar.integrations.trl.deciding import (
    Decider,
    append_column,
    choose_verifier,
    find_decider,
    gar,
    listed,
    warn_unread,
)
from gar.integrations.trl.problems import ProblemRows
from gar.integrations.trl.ranks import TrlRanks, gathered_on_main
from gar.integrations.trl.resumable import ResumableTrainer
from gar.integrations.trl.rollouts import RolloutBatch, gated_advantages, mean_advantages
from gar.integrations.trl.states import StateSource
from gar.integrations.trl.weights import WeightChange
from gar.integrations.watchdog import SAMPLING_RATIO, PromptWatch, SamplingWatch, Watchdog
from gar.methods import Method, find_method
from gar.methods.parts import RunParts
from gar.metrics import ADVANTAGE
from gar.models.adapters import check_embeddings, sort_targets
from gar.models.capture import capture_hidden
from gar.models.generate import own_generation
from gar.models.rope import context_of
from gar.reader import Reader, judge
from gar.records import RolloutRecord
from gar.response import Anchors
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings, WatchdogSettings
from gar.step import Shaping, Step, plan_shaping
from gar.types import A_VERIFIER, ResponseVerifier


class GARTrainer(ResumableTrainer):
    """TRL's `GRPOTrainer` with the reward of a method of `gar.methods`: GAR's, unless you name another.

    What decides whether a response is right:

    * Only `reward_funcs`: your function. A value above 0 is right. A response with None is neither right nor wrong, and
      is not scored. With several functions, `correct` names the one that decides. TRL's columns are your functions, and
      the method's bonus follows as the column `gar`.
    * `verifier`: the verifier. The method's reward is column 0, `gar`, and your functions add to it. In
      `args.reward_weights` the method's weight comes first.
    * Neither: `Verifier(format="none")`, which finds the answer anywhere in the text. No format is required.

    Args:
        model: As in `GRPOTrainer`: a causal LM, or a Hub id or folder.
        reward_funcs: As in `GRPOTrainer`. With token-level rewards they are paid on the last token.
        correct: Decides which responses are right. Needed if `reward_funcs` are several, or a reward model. Give the
            name of one: a value above 0 is right, and the bonus has its weight, or 1 if that is 0. Or give a function
            that takes the values of one response by name, for example {"accuracy": 1.0, "style": None}, and returns
            True, False or None. The bonus then has weight 1.
        args: As in `GRPOTrainer`. Fields that belong to the method (`Method.trl`) take its values. The others keep
            TRL's own defaults, which differ from `gar train`: TRL's default loss averages over all tokens of the batch
            ("dapo"), and the paper's is `loss_type="grpo"`.
        train_dataset: A `datasets.Dataset` or a list of rows with the columns `prompt` (text or messages), `answer`
            (not read if a reward function decides) and `expert_solution` (a text or a list of texts), or in another
            schema of `gar.data.schemas`, or a list of `gar.Problem`. Responses to one row form a group. Rows are read
            when their group is sampled. An `IterableDataset` needs `args.max_steps`.
        eval_dataset: As in `GRPOTrainer`, with the columns of `train_dataset`. Measured by the outcome only.
        processing_class: The tokenizer, padding on the left. None loads the model's.
        verifier: In place of `correct`: judges the text of each response, and requires a format, for example
            `gar.Verifier()`.
        prompt_field: Other name of the column of the prompt.
        answer_field: Other name of the column of the answer.
        expert_fields: Other names of columns of the expert solution. The first non-empty one is used.
        method: Name of a method in `gar.methods.METHODS`, or your own method.
        signal: Which tokens are scored, and how.
        reward: From verdicts and alignment to rewards.
        advantage: From rewards to advantages. Unset values leave TRL's own.
        watchdog: When to warn, or stop, if all responses are cut off, unparsed or wrong. By default as in `gar train`.
        on_rollouts: Called on the main process with the step and the records of all ranks' responses.
        shaping: The result of `plan_shaping` for `method`, `signal`, `reward` and `advantage`, if the caller has it and
            has checked the data set. By default the trainer calls it.
        **kwargs: As in `GRPOTrainer`: callbacks, peft_config, quantization_config, tools, environment_factory, ...

    Raises:
        ConfigError: An unknown method, a model that reads images, or a TRL setting that makes GAR's rewards wrong.
        DataError: A column is missing, a row is bad, or no row has an expert solution.
        ModelError: A head that the closed form does not cover.
    """

    _name = "GAR"
    # TRL's model card reads these two.
    _tag_names: ClassVar = ["trl", "gar"]
    _paper: ClassVar = {
        "title": "GAR: Gradient-Aligned Reward",
        "id": "2609.03342",
        "citation": "@misc{gar2026, title = {GAR: Gradient-Aligned Reward}, eprint = {2609.03342}}",
    }

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        correct: Any = None,
        verifier: ResponseVerifier | None = None,
        prompt_field: str | None = None,
        answer_field: str | None = None,
        expert_fields: str | Sequence[str] = (),
        method: str | Method = "gar-grpo",
        signal: SignalSettings | None = None,
        reward: RewardSettings | None = None,
        advantage: AdvantageSettings | None = None,
        watchdog: WatchdogSettings | None = None,
        on_rollouts: Callable[[int, list[RolloutRecord]], None] | None = None,
        shaping: Shaping | None = None,
        **kwargs: Any,
    ):
        check_contract()
        expect(model, str | Path | torch.nn.Module, "model", "a model, a folder or a Hub id")
        expect(args, GRPOConfig | None, "args", "a trl.GRPOConfig")
        expect(verifier, ResponseVerifier | None, "verifier", A_VERIFIER)
        expect(watchdog, WatchdogSettings | None, "watchdog", "a gar.WatchdogSettings")
        expect(on_rollouts, Callable | None, "on_rollouts", "a function")  # pyright: ignore[reportOptionalOperand]
        check_processor(processing_class)
        # 1. What decides: the script's functions, or a verifier, whose reward is TRL's first column.
        functions = listed(reward_funcs)
        may_grow = bool(kwargs.get("environment_factory"))
        self._verifier = choose_verifier(functions, correct, verifier, may_grow=may_grow)
        if self._verifier is None:
            answer_field = answer_field or ""
        else:
            functions.insert(0, gar)
            if (classes := kwargs.get("reward_processing_classes")) is not None:
                kwargs["reward_processing_classes"] = [None, *listed(classes)]
        # 2. The data, and the settings in force. A run has checked both.
        columns = {"prompt_field": prompt_field, "answer_field": answer_field, "expert_fields": expert_fields}
        self._problems = ProblemRows(train_dataset, columns)
        self._on_rollouts, self._method = on_rollouts, find_method(method)
        self._config = with_method(args or GRPOConfig("gar-output"), self._method)
        sections = {"signal": signal, "reward": reward, "advantage": advantage}
        engine = PLAIN_TRAINER if type(self) is GARTrainer else TRL
        self.shaping: Shaping = shaping or plan_shaping(engine, self._method, sections, flags=trl_flags(self._config))
        """Method and settings in force."""
        if shaping is None:
            self._problems.check(self._config, self._method)
        # 3. TRL loads the model, if it is a name, and adds an adapter.
        super().__init__(
            model=model,
            reward_funcs=[*functions],  # TRL replaces ids by models
            args=self._config,
            train_dataset=self._problems.training,
            eval_dataset=self._problems.evaluation(eval_dataset),
            processing_class=processing_class,
            **kwargs,
        )
        sort_targets(self.model)
        check_processor(self.processing_class)  # which TRL may have loaded
        # 4. If functions decide, the method's reward is TRL's last column.
        self._decider: Decider | None = None
        self._own_column = 0
        if self._verifier is None:
            functions += self.reward_funcs[len(functions) :]  # an environment's
            self._decider = find_decider(functions, correct, self.reward_func_names)
            warn_unread(self.shaping.reward)
            self._own_column = append_column(self, self._decider.column)
        # 5. What reads the model, and what only it shows.
        self._watchdog = Watchdog(watchdog or WatchdogSettings())
        self._prepare()
        if shaping is None:
            check_embeddings(self.model)
            self._problems.check_prompts(self.model, self.reader, self._config.max_completion_length or 0)
            self._problems.check_anchors(self._method, self.reader, self._verifier)

    @classmethod
    def from_parts(cls, parts: RunParts, **changes: Any) -> Self:
        """The trainer of a run, for `Method.trainer`.

        Args:
            parts: What the run has.
            changes: Arguments that differ from the run's.
        """
        settings = parts.settings
        arguments: dict[str, Any] = {
            "model": parts.model, "train_dataset": parts.problems, "verifier": parts.verifier, "args": parts.arguments,
            "processing_class": parts.tokenizer, "on_rollouts": parts.on_rollouts,
            "peft_config": parts.adapter, "method": settings.method, "shaping": parts.shaping,
            "watchdog": WatchdogSettings(mode="off"),  # the run watches over all its phases
        }  # fmt: skip  # a table of names
        return cls(**(arguments | changes))

    def token_advantages(self, batch: RolloutBatch, inputs: dict[str, Any], in_loss: Tensor) -> Tensor:
        """Advantages of a generation, [responses] or [responses, tokens]. Override it for token advantages.

        Args:
            batch: This rank's responses with the rewards of all ranks.
            inputs: TRL's tensors of them. `inputs["advantages"]` are the run's, [responses]. Tensors that you add reach
                `with_added_loss`. They have one row per response, or no dimensions.
            in_loss: Which of their tokens are in the loss, [responses, tokens].
        """
        return inputs["advantages"]

    def with_added_loss(self, model: Any, inputs: dict[str, Any], loss: Tensor) -> Tensor:
        """The loss of a micro-batch in training. Override it to add a term with a gradient.

        Args:
            model: The policy as the trainer wraps it.
            inputs: The micro-batch's share of TRL's tensors, and of those from `token_advantages`.
            loss: TRL's, already divided by the number of micro-batches of the optimizer step.
        """
        return loss

    def _prepare(self) -> None:
        """Set what depends on the finished trainer: head, reader, anchors, loss, and the state of a step."""
        self._states = StateSource(self, initial=self.shaping.reads_initial)
        context = context_of(cast(Any, self.model).config)
        self.reader = Reader.from_settings(
            self.processing_class,
            self.shaping.signal,
            self._verifier,
            context=context,
            chat_template_kwargs=cast("dict[str, Any]", self.chat_template_kwargs),
        )
        """Reads responses and expert solutions."""
        if self._method.alignment == "shuffled-anchor":
            self._problems.shuffle_anchors(self._config.seed)
        self._loss_inputs: dict[str, Any] | None = None  # TRL's tensors of the micro-batch in its loss
        self._batch: RolloutBatch | None = None
        self._sampling = SamplingWatch()
        self._prompt_watch = PromptWatch(context, self._config.max_completion_length or 0)
        self._timer = StepTimer(self._metrics["train"])
        self.add_callback(self._timer)
        if not self.is_deepspeed_enabled:
            self.add_callback(WeightChange(self._metrics["train"], TrlRanks(self.accelerator)))

    # TRL's hooks, in the order in which one generation batch passes them.

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._states.refresh()
        ranks = TrlRanks(self.accelerator)
        if self._is_training():
            size = cast(int, self.num_generations)
            rows, group_index, problems = self._problems.taken(inputs, ranks, group_size=size, method=self._method)
        else:  # groups by place, as TRL's
            rows, _, problems = self._problems.taken(inputs, ranks, group_size=1)
            size, first = cast(int, self.num_generations_eval), self.accelerator.process_index * len(inputs)
            group_index = [place // size for place in range(first, first + len(inputs))]
        self._batch = RolloutBatch(problems=problems, group_index=group_index, rows=rows)
        output = super()._generate_and_score_completions(self._batch.rows)
        in_loss = output["completion_mask"] * output.get("tool_mask", 1)
        if self.shaping.overrides_advantages:
            output["advantages"] = self._own_advantages(self._batch, in_loss).to(output["advantages"])
        elif self._is_training():
            # Rewards of a group are equal, and TRL's float32 mean of them can differ.
            equal = self.shaping.without_advantage(self._batch.total_rewards, self._batch.step.group_index)
            output["advantages"][equal[self._batch.step.here]] = 0.0
        if self._is_training():
            with self._timer.part("gar"):
                output["advantages"] = self.token_advantages(self._batch, output, in_loss).to(output["advantages"])
        self._batch.advantages = mean_advantages(output["advantages"], in_loss)
        if self._is_training():
            self._report(self._batch)
        self._batch = None
        return output

    def _generate(self, prompts: list) -> tuple:
        # 1. TRL samples. Its states are kept, if they are those that count.
        wanted = self._is_training() and self._method.reads_vectors
        with (
            self._timer.part("generation"),
            own_generation(self.accelerator.unwrap_model(self.model), getattr(self, "generation_config", None)),
            self._states.while_sampling(wanted=wanted) as states,
        ):
            generated = super()._generate(prompts)
        batch = self._batch
        assert batch is not None
        prompt_ids, completion_ids, token_mask = generated[:3]
        self._prompt_watch.watch(max(map(len, prompt_ids)))
        # 2. Responses and anchors are read from their tokens.
        endings = [*self.eos_token_ids, self._tokenizer.pad_token_id]
        with self._timer.part("gar"):
            anchors: dict[int, Anchors] = {}  # they are only counted if nothing compares with them
            if self._is_training() and self._method.alignment is not None:
                anchors = self._problems.anchors(self.reader, batch.group_index, batch.problems, prompt_ids)
            batch.read(self.reader, anchors, prompt_ids, completion_ids, token_mask, endings=endings)
        # 3. TRL's functions are called, and the verifier or one of them decides what is right.
        with self._timer.part("verification"):
            batch.add_fields(generated[5])
            batch.columns = super()._calculate_rewards(batch.rows, prompts, generated[3], completion_ids)
            first = self.accelerator.process_index * len(prompts)
            if self._decider is not None:
                batch.take_decisions(self._decider.decide(batch.columns, slice(first, first + len(prompts))))
            elif self._verifier is not None:
                batch.responses = judge(self._verifier, batch.responses, batch.problems)
        # 4. All ranks find out which responses need a vector. Some have one from sampling.
        shaping = self.shaping if self._is_training() else self.shaping.outcome_alone()
        batch.step = Step(
            shaping,
            batch.responses,
            ranks=TrlRanks(self.accelerator),
            pieces=self.reader.pieces,
            seed=self._config.seed,
        )
        hidden = states.stacked(len(batch), max(map(len, completion_ids)))
        width = max(map(len, prompt_ids)) + max(map(len, completion_ids))
        if hidden is not None and token_mask is None and self._states.policy.rope.fits(0, width):
            with self._timer.part("gar"):
                batch.take_hidden(self._states.policy, self.shaping.signal, 1, hidden)
        return generated

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._loss_inputs = dict(inputs)  # `inputs` stay as they are for the next epoch over them
        try:
            loss = super()._compute_loss(model, self._loss_inputs)
        finally:
            self._loss_inputs = None
        return self.with_added_loss(model, inputs, loss) if self._is_training() else loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> tuple:
        given = (model, input_ids, attention_mask, logits_to_keep, *args)
        compute = partial(super()._get_per_token_logps_and_entropies, *given, **kwargs)
        if self._loss_inputs is not None:
            return self._gate_advantages(compute(), self._loss_inputs)
        if self._batch is not None and self._needs_hidden(self._batch, model):
            with self._capture(self._batch, attention_mask, first_column=input_ids.shape[1] - logits_to_keep):
                return compute()
        return compute()

    def _gate_advantages(self, result: tuple, loss_inputs: dict[str, Any]) -> tuple:
        """In the loss's own pass: a method with a gate weighs the advantages, which TRL reads afterwards."""
        if self._method.gate is not None:
            loss_inputs["advantages"] = gated_advantages(self._method.gate, result[0], loss_inputs)
        return result

    def _needs_hidden(self, batch: RolloutBatch, model: Any) -> bool:
        """Whether TRL's next pass gives the hidden states for the vectors of the batch."""
        is_first = not batch.num_passed and not torch.is_grad_enabled()
        return is_first and self._states.come_from_pass(model) and batch.step.needs_vectors

    def _capture(
        self, batch: RolloutBatch, attention_mask: Tensor, first_column: int
    ) -> AbstractContextManager[object]:
        """While open, a pass of the policy gives the batch its hidden states."""
        parts = self._states.policy.gathered()
        take = partial(batch.take_hidden, parts, self.shaping.signal, first_column)
        timed = self._timer.part("gar")(partial(take, attended=batch.attended(attention_mask, parts.rope)))
        return capture_hidden(parts.backbone, timed)

    def _calculate_rewards(self, inputs: list, prompts: list, completions: list, completion_ids_list: list) -> Tensor:
        batch = self._batch
        assert batch is not None
        with self._timer.part("gar"):
            # 1. The vectors that no pass of TRL's has given. Without a need for any, none.
            vectors = anchors = torch.zeros(0, 0) if batch.step.shaping.method.reads_vectors else None
            if batch.step.needs_vectors:
                with self._states.own_passes() as parts:
                    vectors, anchors = batch.compute_missing(parts, self.shaping.signal, self._most)
            # 2. The rewards of all ranks, in TRL's column of the method.
            batch.step.finish(vectors, anchors)
            batch.fill_column(self._own_column, self.reward_weights, adds=self._verifier is None)
        if self.log_completions:
            experts = ["\n\n".join(anchor.text for anchor in problem.anchors) for problem in batch.problems]
            self._log_completion_extra("expert solution", experts)
        return batch.columns

    def _own_advantages(self, batch: RolloutBatch, in_loss: Tensor) -> Tensor:
        counted = ~batch.columns.isnan().all(1).cpu()  # as TRL leaves out what no function has scored
        rewards = batch.total_rewards
        scale = "std" if self._config.scale_rewards == "group" else "none"
        counts = self._gather(in_loss.sum(1))
        groups = batch.step.group_index
        advantages, of = torch.zeros_like(rewards), self.shaping.advantages
        advantages[counted] = of(rewards[counted], groups[counted], token_counts=counts[counted], scale=scale)
        return advantages[batch.step.here]

    def _report(self, batch: RolloutBatch) -> None:
        """Metrics, the same on every rank, and the records of all ranks on the main process."""
        advantages = self._gather(torch.tensor(batch.advantages)).abs().tolist()
        metrics = batch.step.metrics() | {ADVANTAGE: sum(advantages) / len(advantages)}
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        rows = gathered_on_main(batch.records(step=self.state.global_step + 1))
        if self._on_rollouts is not None and self.accelerator.is_main_process:
            self._on_rollouts(self.state.global_step + 1, rows)
        self._watchdog.watch(self.state.global_step + 1, batch.step)
        if ratios := self._metrics["train"].get(SAMPLING_RATIO):  # TRL has it with vLLM
            self._sampling.watch(self.state.global_step + 1, ratios[-1])

    def _is_training(self) -> bool:
        return self.model is not None and self.model.training

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log. Completions are printed at most once for each logged step."""
        with completions_printed(self, logs):
            super().log(logs, start_time)

    def log_mean(self, name: str, values: Tensor) -> None:
        """Log the mean over all ranks as `gar/NAME`, NaN left out."""
        self._metrics["train"][f"gar/{name}"].append(float(self._gather(values).nanmean()))

    def _gather(self, values: Tensor) -> Tensor:
        """The values of all ranks, on the CPU."""
        return cast(Tensor, self.accelerator.gather(values.to(self.accelerator.device))).cpu()

    def _most(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return int(self._gather(torch.tensor([number])).max())
