"""The groups of `tests/conformance` in slime's format, and their vectors and rewards on one process."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gar.core import alignment_scores, gradient_activation_means, unit_rows
from gar.integrations.slime.settings import LOG_PROB_HOOK, SLIME_HOOKS
from gar.methods import METHODS, ScoredBatch
from gar.models.embedded import embedded_path
from gar.response import NO_SEQUENCE, Anchors, Response, TokenSequence
from gar.settings import RewardSettings
from gar.types import Status, Verdict
from tests.conformance.groups import GROUP_SIZE, GROUPS, encode, make_rollouts

VOCAB = 90
OFF = """normalize_advantages allgather_cp use_rollout_logprobs get_mismatch_metrics keep_old_actor use_critic use_opd
    use_routing_replay"""


def make_arguments(**changes: Any) -> SimpleNamespace:
    """slime's arguments, as far as the plugin reads them."""
    values = {
        "gar": {"advantage": {"ddof": 1, "eps": 1e-6}},
        "custom_config_path": "gar.yaml",
        "hf_checkpoint": str(embedded_path()),
        "advantage_estimator": "grpo",
        "compute_advantages_and_returns": True,
        "custom_reward_post_process_path": None,
        "custom_megatron_before_log_prob_hook_path": None,
        "dynamic_sampling_filter_path": None,
        "rewards_normalization": True,
        "grpo_std_normalization": True,
        "use_dynamic_batch_size": True,
        "max_tokens_per_gpu": 96,
        "log_probs_max_tokens_per_gpu": 96,
        "micro_batch_size": 1,
        "seq_length": 64,
        "data_pad_size_multiplier": 4,
        "vocab_size": VOCAB,
        "rollout_temperature": 1.0,
        "rollout_batch_size": len(GROUPS),
        "n_samples_per_prompt": GROUP_SIZE,
        "global_batch_size": 2 * len(GROUPS),
        "loss_type": "policy_loss",
        "kl_coef": 0.0,
        **dict.fromkeys(OFF.split(), False),
        **SLIME_HOOKS,
    }
    return SimpleNamespace(**(values | changes))


def make_capturing(**changes: Any) -> SimpleNamespace:
    """The same for `capture: logprob`."""
    gar = {**changes.pop("gar", {}), "capture": "logprob"}
    return make_arguments(gar=gar, **LOG_PROB_HOOK, **changes)


def make_data() -> dict[str, Any]:
    """slime's training data of the groups of `tests/conformance`, payloads included."""
    data: dict[str, list] = {key: [] for key in ("tokens", "response_lengths", "rewards", "loss_masks", "prompt")}
    for rollout in make_rollouts():
        sequence, problem, right = rollout.sequence, rollout.problem, rollout.verified
        anchors = tuple(encode(problem.prompt, anchor.text) for anchor in problem.anchors)
        status = Status.OK if right else Status.WRONG
        payload = Response(
            group_index=rollout.group_index * 10,
            sequence=TokenSequence(positions=sequence.positions),
            anchors=Anchors(anchors),
            verdict=Verdict(status=status, grade=float(right), verified=right, well_formatted=rollout.well_formatted),
        )
        data["tokens"].append([*sequence.context_ids, *sequence.ids])
        data["response_lengths"].append(len(sequence.ids))
        data["rewards"].append(float(right))
        data["loss_masks"].append(sequence.mask or [1] * len(sequence.ids))
        data["prompt"].append(payload)
    data["rollout_log_probs"] = [torch.zeros(length) for length in data["response_lengths"]]
    return data


def make_samples(kind: Any) -> list[Any]:
    """The groups of `tests/conformance` as records of slime's class."""
    return [
        kind(
            group_index=rollout.group_index, index=i, prompt=rollout.problem.prompt, label=rollout.problem.answer,
            tokens=[*rollout.sequence.context_ids, *rollout.sequence.ids], response=rollout.text,
            response_length=len(rollout.sequence.ids), reward=0.0, loss_mask=rollout.sequence.mask,
            metadata={"anchors": [anchor.text for anchor in rollout.problem.anchors]},
        )
        for i, rollout in enumerate(make_rollouts())
    ]  # fmt: skip


def sequences_of(data: dict[str, Any]) -> tuple[list[TokenSequence], list[TokenSequence]]:
    """All responses, and for each of them the anchor of its group, or an empty sequence."""
    responses, anchors = [], []
    for tokens, length, payload in zip(data["tokens"], data["response_lengths"], data["prompt"], strict=True):
        context, ids = tokens[:-length], tokens[-length:]
        responses.append(TokenSequence(context_ids=context, ids=ids, positions=payload.sequence.positions))
        anchors.append(payload.anchors.usable[0] if payload.anchors.usable else NO_SEQUENCE)
    return responses, anchors


def true_rewards(
    data: dict[str, Any], response_means: Tensor, anchor_means: Tensor, method: str = "gar-grpo"
) -> tuple[Tensor, Tensor]:
    """Rewards and alignments from the means of all responses and of the anchor of each, by the core."""
    cosines = alignment_scores(unit_rows(response_means), unit_rows(anchor_means)).double()
    scored = (response_means != 0).any(-1) & (anchor_means != 0).any(-1)
    verdicts = [payload.verdict for payload in data["prompt"]]
    batch = ScoredBatch(
        verified=torch.tensor([verdict.verified for verdict in verdicts]),
        well_formatted=torch.tensor([verdict.well_formatted for verdict in verdicts]),
        group_index=torch.tensor([payload.group_index for payload in data["prompt"]]),
        num_tokens=torch.tensor([payload.num_tokens for payload in data["prompt"]]),
        alignment=cosines.where(scored, torch.nan),
    )
    return METHODS[method].shape(batch, RewardSettings()).rewards, batch.alignment


def core_means(
    hidden: list[Tensor], sequences: list[TokenSequence], weight: Tensor, signal: dict, keep: list
) -> Tensor:
    """The core's means of the scored tokens, in float64 from the hidden states on."""
    rows, targets, index = [], [], []
    for i, (states, sequence) in enumerate(zip(hidden, sequences, strict=True)):
        for position in sequence.positions:
            rows.append(states[len(sequence.context_ids) + position - 1])
            targets.append(sequence.ids[position])
            index.append(i)
    return gradient_activation_means(
        torch.stack(rows).double(), weight[:VOCAB].double(), torch.tensor(targets), torch.tensor(index),
        num_responses=len(sequences), keep_fraction=torch.tensor(keep),
        signal=signal.get("kind", "gradient-activation"), activation_threshold=signal.get("activation_threshold", 0.0),
    )  # fmt: skip
