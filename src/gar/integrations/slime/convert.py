"""In slime's rollout manager: verify the responses, find their scored tokens, and send both along with the data."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from gar.config import RunConfig
from gar.errors import ConfigError, DataError
from gar.integrations.slime.facts import ResponseFacts, ResponsePayload, scored_batch
from gar.integrations.slime.settings import check_supported, read_settings
from gar.methods import METHODS
from gar.spans import (
    SpanRule,
    TokenSequence,
    anchor_sequence,
    ends_in_thinking_tag,
    scored_positions,
    token_pieces,
    without_trailing_special,
)
from gar.types import Verdict
from gar.verify import Verifier

PAYLOAD_KEY = "prompt"
"""slime hands only the keys of a list to the ranks. This one is on it, and slime itself never fills it."""

_VERDICT = "gar_verdict"


def convert_samples(args: Any, samples: list[Any]) -> dict[str, Any]:
    """slime's own training data, with a `ResponsePayload` for each sample.

    Args:
        args: slime's arguments.
        samples: slime's `Sample`s, of all problems of the batch.

    Raises:
        ConfigError: A setting is wrong, or the job is one that GAR cannot do (`check_supported`).
        DataError: A sample lacks what GAR needs: a group, a gold answer, a prompt, anchors; or it holds more than text.
    """
    config = read_settings(args)
    check_supported(args, config)
    _check_samples(samples, needs_anchors=METHODS[config.method].needs_alignment)
    data = _slime_train_data(args, samples)
    _check_rollout_ids(data)
    reader = _reader(args.hf_checkpoint, config.model_dump_json())
    data[PAYLOAD_KEY] = reader.payloads(samples, data["loss_masks"])
    return data


async def outcome_reward(args: Any, sample: Any, **_: Any) -> float | list[float]:
    """Reward model for slime: base reward or penalty, without bonus. What slime logs is then what GAR starts from.

    The verdict stays with the sample, so that `convert_samples` need not verify again.

    Args:
        args: slime's arguments.
        sample: One `Sample`, or a list of them under slime's --group-rm.
    """
    config = read_settings(args)
    reader = _reader(args.hf_checkpoint, config.model_dump_json())
    samples = sample if isinstance(sample, list) else [sample]
    verdicts = await asyncio.to_thread(reader.verdicts, samples)
    facts = []
    for i, (each, verdict) in enumerate(zip(samples, verdicts, strict=True)):
        each.metadata = {**(each.metadata or {}), _VERDICT: verdict}
        facts.append(_facts(i, 0, verdict))
    rewards = METHODS["grpo"].shape(scored_batch(facts), config.reward).rewards.tolist()
    return rewards if isinstance(sample, list) else rewards[0]


class SampleReader:
    """Knows the tokenizer and the verifier of a run.

    Args:
        tokenizer: The policy's.
        config: From `read_settings`.
    """

    def __init__(self, tokenizer: Any, config: RunConfig):
        verify = config.verify
        tags = verify.tags.as_tags()
        self._tokenizer = tokenizer
        self._pieces = token_pieces(tokenizer)
        self._rule = SpanRule.from_settings(config.signal, format=verify.format, tags=tags, tokenizer=tokenizer)
        self._verifier = Verifier.from_settings(verify)

    def verdicts(self, samples: Sequence[Any]) -> list[Verdict]:
        """A verdict for each sample, on the text of its own tokens; one that is known is not asked for again."""
        known = [(sample.metadata or {}).get(_VERDICT) for sample in samples]
        missing = [sample for sample, verdict in zip(samples, known, strict=True) if verdict is None]
        found = iter(
            self._verifier.verify(
                [self._text(sample) for sample in missing],
                [str(sample.label) for sample in missing],
                prefilled_think=[self._prefilled(sample) for sample in missing],
                prompts=[self._tokenizer.decode(_prompt_ids(sample)) for sample in missing],
            )
        )
        return [next(found) if verdict is None else verdict for verdict in known]

    def payloads(self, samples: Sequence[Any], loss_masks: Sequence[Sequence[int]]) -> list[ResponsePayload]:
        """What each sample sends along, in order."""
        anchors: dict[int, tuple[TokenSequence, ...]] = {}
        payloads = []
        verdicts = self.verdicts(samples)
        for i, (sample, verdict, mask) in enumerate(zip(samples, verdicts, loss_masks, strict=True)):
            if sample.group_index not in anchors:
                anchors[sample.group_index] = self._anchors(sample)
            positions = scored_positions(
                _response_ids(sample), self._pieces, self._rule, prefilled=self._prefilled(sample), mask=mask
            )
            mine = anchors[sample.group_index]
            facts = _facts(i, sample.group_index, verdict, num_anchors=len(mine), num_scored_tokens=len(positions))
            payloads.append(ResponsePayload(facts=facts, positions=tuple(positions), anchors=mine))
        return payloads

    def _anchors(self, sample: Any) -> tuple[TokenSequence, ...]:
        sequences = [
            anchor_sequence(_prompt_ids(sample), text, self._tokenizer, self._rule, pieces=self._pieces)
            for text in sample.metadata.get("anchors", ())
        ]
        return tuple(sequence for sequence in sequences if sequence.positions)

    def _text(self, sample: Any) -> str:
        body = without_trailing_special(_response_ids(sample), self._rule.special_ids)
        return str(self._tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _prefilled(self, sample: Any) -> bool:
        return ends_in_thinking_tag(_prompt_ids(sample), self._pieces, self._rule.tags)


@functools.lru_cache(maxsize=1)
def _reader(checkpoint: str, settings: str) -> SampleReader:
    from slime.utils.processing_utils import load_tokenizer

    return SampleReader(load_tokenizer(checkpoint, trust_remote_code=False), RunConfig.model_validate_json(settings))


def _facts(
    position: int, group_index: int, verdict: Verdict, *, num_anchors: int = 0, num_scored_tokens: int = 0
) -> ResponseFacts:
    return ResponseFacts(
        position=position,
        group_index=group_index,
        status=str(verdict.status),
        verified=verdict.verified,
        well_formatted=verdict.well_formatted,
        num_anchors=num_anchors,
        num_scored_tokens=num_scored_tokens,
    )


def _prompt_ids(sample: Any) -> list[int]:
    return sample.tokens[: len(sample.tokens) - sample.response_length]


def _response_ids(sample: Any) -> list[int]:
    return sample.tokens[len(sample.tokens) - sample.response_length :]


def _slime_train_data(args: Any, samples: list[Any]) -> dict[str, Any]:
    """What slime's own converter makes of the samples. It is a method of its manager and reads three attributes."""
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
                f"sample {i} has no group_index: which responses belong together? slime's data source sets it"
            )
        name = f"sample {i} (group {sample.group_index})"
        if sample.label is None:
            raise DataError(f"{name} has no label, the gold answer. Is --label-key set?")
        if len(sample.tokens) <= sample.response_length:
            raise DataError(f"{name} has no prompt: nothing predicts its first token")
        if sample.multimodal_inputs or sample.multimodal_train_inputs:
            raise DataError(f"{name} has multimodal inputs; GAR works on text")
        if not isinstance(anchors, list) or not all(isinstance(anchor, str) for anchor in anchors):
            raise DataError(
                f"{name}: metadata['anchors'] must be a list of texts, got {anchors!r}. Was the data written by "
                "`gar data slime`?"
            )
    if needs_anchors and not any("anchors" in (sample.metadata or {}) for sample in samples):
        raise DataError(
            f"none of {len(samples)} samples has metadata['anchors'], the expert solutions. Was the data written by "
            "`gar data slime`, and is --metadata-key its column 'metadata'?"
        )


def _check_rollout_ids(data: dict[str, Any]) -> None:
    ids = data["rollout_ids"] if "rollout_ids" in data else data["group_ids"]  # the latter in slime 0.3.0
    if len(set(ids)) < len(ids):
        raise ConfigError(
            f"{len(ids)} samples come from {len(set(ids))} rollouts. GAR scores one response per rollout; one that is "
            "cut into several samples (agents, compaction) has no single thinking span."
        )
