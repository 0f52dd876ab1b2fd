"""In slime's rollout manager: verify the responses, find their scored tokens, and attach both to the training data."""

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gar.config import RunConfig, make_config
from gar.errors import ConfigError, DataError
from gar.integrations.slime.settings import read_settings, read_shaping
from gar.methods import find_method
from gar.models.rope import fixed_context
from gar.reader import Reader, judge
from gar.response import Anchors, Response, TokenSequence
from gar.scoring.filtering import signal_key
from gar.step import Step
from gar.verify import Verifier

PAYLOAD_KEY = "prompt"
"""Holds a `Response` without its tokens for each sample. slime sends this key to the ranks but does not read it."""

_VERDICT = "gar_verdict"


def convert_samples(args: Any, samples: list[Any]) -> dict[str, Any]:
    """slime's own training data, with a `Response` for each sample.

    A sample that slime aborted has an unfinished response, and perhaps no reward. It is left out of its group and of
    the loss, and stays in the data, because slime counts its rollouts.

    Raises:
        ConfigError: A setting is wrong, or the job is one that GAR cannot do (`read_shaping`).
        DataError: A sample lacks what GAR needs: a group, a gold answer, a prompt, anchors, or it holds more than text.
    """
    _check_samples(samples, needs_anchors=read_shaping(args).method.needs_alignment)
    reward_key = getattr(args, "reward_key", None)
    for sample in filter(_is_aborted, samples):
        sample.remove_sample = True
        sample.reward = {reward_key: 0.0} if reward_key else 0.0  # for slime's statistics. `postprocess` replaces it
    payloads = sample_reader(args).payloads(samples)  # before slime empties the loss masks of samples that it removes
    data = _slime_train_data(args, samples)
    ids = data["rollout_ids"] if "rollout_ids" in data else data["group_ids"]  # the latter in slime 0.3.0
    if len(set(ids)) < len(ids):
        raise ConfigError(
            f"{len(ids)} samples come from {len(set(ids))} rollouts. GAR scores one response per rollout. One that is "
            "cut into several samples (agents, compaction) has no single thinking span.",
            code="cut-rollouts",
        )
    data[PAYLOAD_KEY] = payloads
    return data


async def outcome_reward(args: Any, sample: Any, **_: Any) -> float | list[float]:
    """Reward model for slime, which logs it: base reward or penalty, without bonus. A list under slime's --group-rm.

    The sample keeps the verdict, so `convert_samples` does not verify again.
    """
    reader = sample_reader(args)
    samples = sample if isinstance(sample, list) else [sample]
    responses = await asyncio.to_thread(reader.judged, samples)
    for graded, response in zip(samples, responses, strict=True):
        graded.metadata = {**(graded.metadata or {}), _VERDICT: response.verdict}
    rewards = Step(read_shaping(args).outcome_alone(), responses).finish().rewards.tolist()
    return rewards if isinstance(sample, list) else rewards[0]


def keeps_signal(args: Any, samples: list[Any], **_: Any) -> Any:
    """slime's `--dynamic-sampling-filter-path`: whether a group carries a signal. slime samples the others again."""
    from slime.rollout.filter_hub.base_types import DynamicFilterOutput

    responses = sample_reader(args).judged(samples)
    anchors = sample_reader(args).anchors(samples[0])
    shaping = read_shaping(args)
    keys = {signal_key(shaping, response, has_anchor=bool(anchors.usable)) for response in responses}
    if len(keys) > 1:
        return DynamicFilterOutput(keep=True)
    outcome = "right" if responses[0].verdict.verified else "wrong"
    return DynamicFilterOutput(keep=False, reason=f"no_signal_all_{outcome}")


class SampleReader:
    """Reads slime's samples with the tokenizer and the verifier of a run.

    `template`: arguments of the chat template, for the prompts of shuffled expert solutions.
    """

    def __init__(
        self, tokenizer: Any, config: RunConfig, *, context: int | None, template: Mapping[str, Any] | None = None
    ):
        self._reader = Reader.from_settings(
            tokenizer, config.signal, config.verify, context=context, chat_template_kwargs=template
        )
        self._verifier = Verifier.from_settings(config.verify)
        self._shuffled = find_method(config.method).alignment == "shuffled-anchor"

    def judged(self, samples: Sequence[Any]) -> list[Response]:
        """A response for each sample, with a verdict on the text that the policy wrote. Known verdicts are reused."""
        responses = [
            self._reader.read(
                _prompt_ids(sample),
                _response_ids(sample),
                mask=sample.loss_mask,
                group_index=sample.group_index or 0,
                truncated=_status(sample) == "truncated",
            )
            for sample in samples
        ]
        known = [(sample.metadata or {}).get(_VERDICT) for sample in samples]
        missing = [i for i, verdict in enumerate(known) if verdict is None]
        asked = [samples[i] for i in missing]
        problems = [self._reader.problem(_prompt_ids(each), each.label, each.metadata) for each in asked]
        judged = iter(judge(self._verifier, [responses[i] for i in missing], problems))
        return [
            next(judged) if verdict is None else replace(response, verdict=verdict)
            for response, verdict in zip(responses, known, strict=True)
        ]

    def anchors(self, sample: Any) -> Anchors:
        """The expert solutions of a sample's problem."""
        return self._reader.carried_anchors(_prompt_ids(sample), sample.metadata, shuffled=self._shuffled)

    def payloads(self, samples: Sequence[Any]) -> list[Response]:
        """The response of each sample without its tokens. All of a group share one object as `anchors`."""
        anchors: dict[int, Anchors] = {}
        payloads = []
        for i, (sample, response) in enumerate(zip(samples, self.judged(samples), strict=True)):
            group = sample.group_index
            if group not in anchors:
                anchors[group] = self.anchors(sample)
            if _is_aborted(sample):
                group = -1 - i  # a group by itself
            positions = () if sample.remove_sample else response.sequence.positions  # removed from slime's loss
            payloads.append(
                replace(
                    response,
                    group_index=group,
                    sequence=TokenSequence(positions=tuple(positions)),
                    text="",
                    anchors=anchors[sample.group_index],
                )
            )
        return payloads


def sample_reader(args: Any) -> SampleReader:
    """The reader of a job, cached by checkpoint and settings."""
    config = read_settings(args).model_copy(update={"signal": read_shaping(args).signal})
    template = json.dumps(getattr(args, "apply_chat_template_kwargs", None))
    return _reader(args.hf_checkpoint, config.model_dump_json(), template)


@functools.lru_cache(maxsize=1)
def _reader(checkpoint: str, settings: str, template: str) -> SampleReader:
    from slime.utils.processing_utils import load_tokenizer
    from transformers import AutoConfig

    config = make_config(json.loads(settings))
    context = fixed_context(AutoConfig.from_pretrained(checkpoint, trust_remote_code=False))
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=False)
    return SampleReader(tokenizer, config, context=context, template=json.loads(template))


def _status(sample: Any) -> Any:
    status = getattr(sample, "status", None)
    return getattr(status, "value", status)


def _is_aborted(sample: Any) -> bool:
    return _status(sample) == "aborted"


def _prompt_ids(sample: Any) -> list[int]:
    return sample.tokens[: len(sample.tokens) - sample.response_length]


def _response_ids(sample: Any) -> list[int]:
    return sample.tokens[len(sample.tokens) - sample.response_length :]


def _slime_train_data(args: Any, samples: list[Any]) -> dict[str, Any]:
    """The output of slime's own converter, a method of its manager that reads three attributes."""
    from slime.ray.rollout import RolloutManager

    class _Converter(RolloutManager.__ray_metadata__.modified_class):  # the class below @ray.remote
        def __init__(self) -> None:  # without the processes that slime's starts
            self.args = args
            self.custom_reward_post_process_func = None
            self.custom_convert_samples_to_train_data_func = None

    return _Converter()._convert_samples_to_train_data(samples)


def _check_samples(samples: Sequence[Any], *, needs_anchors: bool) -> None:
    # What slime leaves out without an error where a flag or a column is missing.
    for i, sample in enumerate(samples):
        anchors = (sample.metadata or {}).get("anchors", [])
        if sample.group_index is None:
            raise DataError(
                f"sample {i} has no group_index, which slime's data source sets: which responses form a group?",
                code="no-group",
            )
        name = f"sample {i} (group {sample.group_index})"
        if sample.label is None:
            raise DataError(f"{name} has no label, the gold answer. Is --label-key set?", code="no-answer")
        if len(sample.tokens) <= sample.response_length:
            raise DataError(f"{name} has no prompt: nothing predicts its first token", code="no-prompt")
        # For text-only samples a processor leaves its keys without a value.
        inputs = (sample.multimodal_inputs or {}) | (sample.multimodal_train_inputs or {})
        if kinds := [kind for kind, value in inputs.items() if value is not None]:
            raise DataError(f"{name} has multimodal inputs ({', '.join(kinds)}). GAR works on text", code="not-text")
        if not isinstance(anchors, list) or not all(isinstance(anchor, str) for anchor in anchors):
            raise DataError(
                f"{name}: metadata['anchors'] must be a list of texts, got {anchors!r}. Was the data written by "
                "`gar data slime`?",
                code="bad-anchors",
            )
    if needs_anchors and not any("anchors" in (sample.metadata or {}) for sample in samples):
        raise DataError(
            f"none of {len(samples)} samples has metadata['anchors'], the expert solutions. Was the data written by "
            "`gar data slime`, and is --metadata-key its column 'metadata'?",
            code="no-anchors",
        )
