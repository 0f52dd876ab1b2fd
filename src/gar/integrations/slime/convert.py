"""In slime's rollout manager: verify the responses, find their scored tokens, and attach both to the training data."""

import asyncio
import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gar.config import RunConfig, make_config
from gar.errors import ConfigError, DataError
from gar.integrations.slime.settings import read_settings, read_shaping
from gar.sequences import NO_ANCHORS, NO_SEQUENCE, AnchorSequences, SequenceReader, TokenSequence, context_of
from gar.settings import SignalSettings
from gar.step import Row, Step, read_row
from gar.types import Verdict
from gar.verify import Verifier

PAYLOAD_KEY = "prompt"
"""Holds a `Row` of each response without its tokens. slime sends this key to the ranks but does not read it."""

_VERDICT = "gar_verdict"


def convert_samples(args: Any, samples: list[Any]) -> dict[str, Any]:
    """slime's own training data, with a `Row` for each sample.

    A sample that slime aborted has an unfinished response, and perhaps no reward. It is left out of its group and of
    the loss, and stays in the data, because slime counts its rollouts.

    Raises:
        ConfigError: A setting is wrong, or the job is one that GAR cannot do (`read_shaping`).
        DataError: A sample lacks what GAR needs: a group, a gold answer, a prompt, anchors, or it holds more than text.
    """
    _check_samples(samples, needs_anchors=read_shaping(args).method.needs_alignment)
    for sample in filter(_is_aborted, samples):
        sample.remove_sample = True
        sample.reward = 0.0  # for slime's own statistics, which `postprocess` replaces
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
    rows = []
    for graded, verdict in zip(samples, await asyncio.to_thread(reader.verdicts, samples), strict=True):
        graded.metadata = {**(graded.metadata or {}), _VERDICT: verdict}
        rows.append(reader.row(graded, verdict))
    rewards = Step(read_shaping(args).outcome_alone(), rows).finish().rewards.tolist()
    return rewards if isinstance(sample, list) else rewards[0]


class SampleReader:
    """Reads slime's samples with the tokenizer and the verifier of a run."""

    def __init__(self, tokenizer: Any, config: RunConfig, signal: SignalSettings, *, context: int | None):
        self._tokenizer = tokenizer
        self._sequences = SequenceReader.from_settings(tokenizer, signal, config.verify, context=context)
        self._verifier = Verifier.from_settings(config.verify)

    def verdicts(self, samples: Sequence[Any]) -> list[Verdict]:
        """A verdict for each sample, on the text that the policy wrote. Known verdicts are reused."""
        known = [(sample.metadata or {}).get(_VERDICT) for sample in samples]
        missing = [sample for sample, verdict in zip(samples, known, strict=True) if verdict is None]
        new = self._verifier.verify(
            [self._sequences.text(_response_ids(sample), sample.loss_mask) for sample in missing],
            [str(sample.label) for sample in missing],
            prefilled_think=[self._sequences.prefilled(_prompt_ids(sample)) for sample in missing],
            prompts=[self._tokenizer.decode(_prompt_ids(sample)) for sample in missing],
        )
        verdicts = iter(new)
        return [next(verdicts) if verdict is None else verdict for verdict in known]

    def payloads(self, samples: Sequence[Any]) -> list[Row]:
        """The row of each sample without its tokens. All rows of a group share one object as `anchors`."""
        anchors: dict[int, AnchorSequences] = {}
        payloads = []
        for i, (sample, verdict) in enumerate(zip(samples, self.verdicts(samples), strict=True)):
            group = sample.group_index
            if group not in anchors:
                texts = (sample.metadata or {}).get("anchors", ())
                anchors[group] = self._sequences.anchors(_prompt_ids(sample), texts)
            sequence = self._sequences.response(_prompt_ids(sample), _response_ids(sample), mask=sample.loss_mask)
            if sample.remove_sample:  # from slime's loss
                sequence = replace(sequence, positions=())
            row = self.row(sample, verdict, sequence, anchors[group])
            if _is_aborted(sample):
                row = replace(row, facts=replace(row.facts, group_index=-1 - i))  # a group by itself
            payloads.append(replace(row, sequence=replace(NO_SEQUENCE, positions=tuple(sequence.positions))))
        return payloads

    def row(
        self,
        sample: Any,
        verdict: Verdict,
        sequence: TokenSequence | None = None,
        anchors: AnchorSequences = NO_ANCHORS,
    ) -> Row:
        """A sample's row. An outcome reward needs neither its sequence nor anchors."""
        sequence = sequence or replace(NO_SEQUENCE, ids=_response_ids(sample), mask=sample.loss_mask)
        truncated, group = _status(sample) == "truncated", sample.group_index or 0
        return read_row(self._sequences, verdict, sequence, anchors, group_index=group, truncated=truncated)


def sample_reader(args: Any) -> SampleReader:
    """The reader of a job, cached by checkpoint and settings."""
    config = read_settings(args).model_copy(update={"signal": read_shaping(args).signal})
    return _reader(args.hf_checkpoint, config.model_dump_json())


@functools.lru_cache(maxsize=1)
def _reader(checkpoint: str, settings: str) -> SampleReader:
    from slime.utils.processing_utils import load_tokenizer
    from transformers import AutoConfig

    config = make_config(json.loads(settings))
    context = context_of(AutoConfig.from_pretrained(checkpoint, trust_remote_code=False))
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=False)
    return SampleReader(tokenizer, config, config.signal, context=context)


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

    manager_class = RolloutManager.__ray_metadata__.modified_class  # the class below @ray.remote
    manager = object.__new__(manager_class)
    manager.args = args
    manager.custom_reward_post_process_func = None
    manager.custom_convert_samples_to_train_data_func = None
    return manager._convert_samples_to_train_data(samples)


def _check_samples(samples: Sequence[Any], *, needs_anchors: bool) -> None:
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
