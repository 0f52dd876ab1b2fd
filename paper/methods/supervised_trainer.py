"""Supervised fine-tuning on the expert solutions, with TRL's `SFTTrainer`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from datasets import Dataset
from torch import Tensor
from transformers import TrainingArguments
from trl import GRPOConfig, SFTConfig, SFTTrainer

from gar import DataError, Problem, Reader
from gar.data import encode_prompt
from gar.integrations.trl import StepTimer
from paper.methods.step_sum import StepSum


class SupervisedTrainer(SFTTrainer):
    """`SFTTrainer` on problems: the loss is the mean over the solutions' tokens, the end token included.

    Args:
        model: The policy.
        problems: Every expert solution is one row.
        reader: Reads solutions as the policy would write them.
        args: The run's arguments. Fields that both of TRL's trainers have are used.
        num_steps: Optimizer steps.
        processing_class: The tokenizer.
        peft_config: As in `SFTTrainer`.

    Raises:
        DataError: No expert solution fits into the model's context.
    """

    def __init__(
        self,
        model: Any,
        *,
        problems: Sequence[Problem],
        reader: Reader,
        args: GRPOConfig,
        num_steps: int,
        processing_class: Any,
        peft_config: Any = None,
    ):
        template = cast("Mapping[str, Any] | None", args.chat_template_kwargs)
        super().__init__(
            model=model,
            args=_sft_arguments(args, num_steps),
            train_dataset=Dataset.from_list(solution_rows(problems, processing_class, reader, template)),
            processing_class=processing_class,
            peft_config=peft_config,
        )
        self._tokens = StepSum("gar/expert_tokens")
        self.add_callback(StepTimer(self._metrics["train"]))

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """TRL's loss. The metrics count the expert tokens of an optimizer step."""
        labels = cast(Tensor, inputs["labels"])
        num_tokens = self.accelerator.gather((labels != -100).sum()).sum().item()  # pyright: ignore[reportAttributeAccessIssue]
        self._tokens.add(self, num_tokens)
        return super().compute_loss(model, inputs, *args, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in `SFTTrainer`. Afterwards the model is plain again."""
        result = super().train(*args, **kwargs)
        self.plain_model()
        return result

    def plain_model(self) -> Any:
        """The trained model without accelerate's wrappers, which the next trainer would take for its own."""
        model = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
        vars(model).pop("_is_accelerate_prepared", None)
        return model


def solution_rows(
    problems: Sequence[Problem], tokenizer: Any, reader: Reader, template: Mapping[str, Any] | None = None
) -> list[dict[str, list[int]]]:
    """Token ids of prompt and solution, and which of them are the solution's, for every solution that can be read.

    Raises:
        DataError: There is none.
    """
    rows = []
    for problem in problems:
        if not problem.anchors:
            continue
        prompt_ids = encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template)
        for sequence in reader.anchors(prompt_ids, [anchor.text for anchor in problem.anchors]).usable:
            written = [*sequence.ids, tokenizer.eos_token_id]
            context = list(sequence.context_ids)
            rows.append({"input_ids": context + written, "completion_mask": [0] * len(context) + [1] * len(written)})
    if not rows:
        raise DataError(f"none of the {len(problems)} problems has an expert solution that fits the model's context")
    return rows


def _sft_arguments(args: GRPOConfig, num_steps: int) -> SFTConfig:
    """The run's arguments that both trainers have, for whole solutions, unpacked."""
    shared = {field.name: getattr(args, field.name) for field in dataclasses.fields(TrainingArguments) if field.init}
    fixed = {"max_steps": num_steps, "max_length": None, "packing": False, "completion_only_loss": True}
    fixed |= {"eval_strategy": "no"}
    return SFTConfig(**(shared | fixed))
