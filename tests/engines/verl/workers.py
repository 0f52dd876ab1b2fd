"""verl's engine and worker on a CPU, with a tiny model. conftest.py makes verl register GAR."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3VLConfig, Qwen3VLForConditionalGeneration

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl lists engines without their libraries
    from verl.protocol import DataProto
    from verl.trainer.config import CheckpointConfig
    from verl.utils import tensordict_utils as tu
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine_workers import ActorRolloutRefWorker

from gar.integrations.verl.exchange import OWN_MASK, REQUEST, signal_request
from gar.integrations.verl.transfer import span_fields
from gar.models.embedded import embedded_path
from gar.response import TokenSequence
from gar.settings import SignalSettings

VOCAB = 64
PLAIN = signal_request(SignalSettings())
COMMON: dict[str, Any] = {
    "use_dynamic_bsz": True,
    "max_token_len_per_gpu": 64,
    "temperature": 0.7,
    "calculate_entropy": False,
    REQUEST: PLAIN,
}
"""Settings of a batch that asks for means."""


def save_model(folder: Path, *, tied: bool, **settings: Any) -> Path:
    """A random two-layer Qwen3 with a head that is peaked enough to tell tokens apart, and the embedded tokenizer."""
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied, **{"max_position_embeddings": 512, **settings},
    )  # fmt: skip
    torch.manual_seed(0)
    return _save(Qwen3ForCausalLM(config), folder)


def save_vision_model(folder: Path) -> Path:
    """A random Qwen3-VL of two layers, likewise. Without a processor's files, which would need torchvision."""
    text = {
        "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
    }  # fmt: skip
    eyes = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32,
        "patch_size": 4, "temporal_patch_size": 1, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    torch.manual_seed(0)
    config = Qwen3VLConfig(text_config=text, vision_config=eyes, tie_word_embeddings=False)
    return _save(Qwen3VLForConditionalGeneration(config), folder)


def _save(model: Any, folder: Path) -> Path:
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.5)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((embedded_path() / name).read_bytes())
    return folder


def make_engine(folder: Path, *, packed: bool = True, strategy: str = "fsdp2", **model: Any) -> Any:
    """The engine that verl's registry gives for a language model, ready to run."""
    engine = EngineRegistry.new(
        model_type="language_model",
        backend=strategy,
        model_config=HFModelConfig(
            path=str(folder), use_remove_padding=packed, enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "sdpa"}, **model,
        ),
        engine_config=FSDPEngineConfig(
            strategy=strategy, use_torch_compile=False, model_dtype="fp32",
            mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        ),
        optimizer_config=FSDPOptimizerConfig(lr=1e-2, total_training_steps=10),
        checkpoint_config=CheckpointConfig(),
    )  # fmt: skip
    engine.initialize()
    return engine


def jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def make_sequences(count: int = 5) -> list[TokenSequence]:
    """Responses with tokens that the policy did not write. One has no span."""
    generator = torch.Generator().manual_seed(1)
    sequences = []
    for i in range(count):
        prompt, response = 3 + i % 3, 9 + 4 * (i % 4)
        ids = torch.randint(VOCAB, (prompt + response,), generator=generator).tolist()
        mask = [int(place not in (4, 5)) for place in range(response)]
        positions = [place for place in range(1, response - 2) if mask[place] and i != 2]
        sequences.append(TokenSequence(context_ids=ids[:prompt], ids=ids[prompt:], positions=positions, mask=mask))
    return sequences


def make_batch(sequences: list[TokenSequence], *, packed: bool = True, **settings: Any) -> Any:
    """A batch of verl's driver that asks for means."""
    ids = [torch.tensor([*s.context_ids, *s.ids]) for s in sequences]
    fields = {
        "input_ids": jagged(ids),
        "position_ids": jagged([torch.arange(len(row)) for row in ids]),
        "loss_mask": jagged([torch.tensor(s.mask) for s in sequences]),
        **span_fields([s if s.positions else None for s in sequences]),
    }
    return tu.get_tensordict(fields, COMMON | {"use_remove_padding": packed} | settings)


class CpuActor(ActorRolloutRefWorker):
    """verl's worker, with the process group that verl makes for accelerators made for the CPU."""

    def __init__(self, *arguments: Any, **named: Any):
        dist.init_process_group("gloo")
        super().__init__(*arguments, **named)


def compose_config(folder: Path, *overrides: str) -> Any:
    """verl's configuration of a job, from flags."""
    chosen = f"""
        trainer.v1.trainer_mode=gar_sync trainer.device=cpu trainer.n_gpus_per_node=1 trainer.logger=[console]
        +gar.method=gar-grpo +gar.verify.format=none
        algorithm.adv_estimator=grpo
        data.train_batch_size=8
        reward.reward_manager.name=gar
        actor_rollout_ref.model.path={folder}
        actor_rollout_ref.model.external_lib=gar.integrations.verl.register
        +actor_rollout_ref.model.override_config.attn_implementation=sdpa
        actor_rollout_ref.model.enable_gradient_checkpointing=false
        actor_rollout_ref.actor.strategy=fsdp2
        actor_rollout_ref.actor.fsdp_config.model_dtype=fp32
        +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
        actor_rollout_ref.actor.fsdp_config.use_torch_compile=false
        actor_rollout_ref.actor.optim.lr=1e-3 actor_rollout_ref.actor.optim.total_training_steps=4
        actor_rollout_ref.actor.ppo_mini_batch_size=4
        actor_rollout_ref.actor.use_dynamic_bsz=true actor_rollout_ref.actor.ppo_max_token_len_per_gpu=256
        actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=3
        actor_rollout_ref.rollout.calculate_log_probs=false
        actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true
        actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=256
        transfer_queue.backend.SimpleStorage.num_data_storage_units=1
        transfer_queue.backend.SimpleStorage.total_storage_size=1000
    """.split()
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*chosen, *overrides])


def trajectory(prompt: list[int], ids: list[int], gold: str, *, mask: Sequence[int] | None = None) -> DataProto:
    """The data that verl's agent loop sends to a reward worker, with GAR's mask."""
    return DataProto(
        batch=TensorDict({"prompts": torch.tensor([prompt]), "responses": torch.tensor([ids])}, batch_size=1),
        non_tensor_batch={
            "prompt_len": np.array([len(prompt)]),
            "response_len": np.array([len(ids)]),
            "reward_model": np.array([{"ground_truth": gold}], dtype=object),
            "tool_extra_fields": np.array([{OWN_MASK: mask or [1] * len(ids)}], dtype=object),
        },
    )
