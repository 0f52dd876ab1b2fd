"""Vectors from verl's Megatron engine, on two CPU processes against one.

Only the model is not verl's: its bridges build layers of Transformer Engine, which needs a GPU.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("megatron", reason="Megatron is not installed beside verl: make test-engines runs this")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from hydra import compose, initialize_config_module
    from megatron.core import mpu, tensor_parallel
    from omegaconf import OmegaConf
    from verl.trainer.config import CheckpointConfig
    from verl.utils import tensordict_utils as tu
    from verl.utils.megatron_utils import unwrap_model
    from verl.workers.config import HFModelConfig, McoreEngineConfig, McoreOptimizerConfig
    from verl.workers.engine import EngineRegistry

from transformers import Qwen3Config

from gar.errors import ModelError
from gar.integrations.verl.exchange import MEANS, REQUEST
from gar.integrations.verl.megatron_engine import GarMegatronEngine
from gar.integrations.verl.settings import read_settings, read_shaping
from gar.integrations.verl.transfer import read_means
from gar.models.embedded import embedded_path
from tests.engines.megatron.policy import build_policy, hidden_states, redirect_cuda
from tests.engines.rollouts import VOCAB, core_means
from tests.engines.verl.workers import PLAIN, make_batch, make_sequences
from tests.support.ranks import run_ranks

pytestmark = [pytest.mark.dist, pytest.mark.filterwarnings("ignore:::(?!gar).*")]

LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor_model_parallel_size": 2, "sequence_parallel": False},
    "sequence": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
    "context": {"context_parallel_size": 2},
    "pipeline": {"pipeline_model_parallel_size": 2},
    "padded": {"tensor_model_parallel_size": 2, "pad_to_length": True, "pad_to_length_bucket": 48},
}
SIGNALS: dict[str, dict[str, Any]] = {
    "plain": {},
    "thresholds": {"activation_threshold": 0.05, "keep_fraction": 0.4},
}


class CpuEngine(GarMegatronEngine):
    """GAR's engine on a model of Megatron's layers for the CPU."""

    tied = True

    def _build_tf_config(self) -> None:
        self.is_value_model, self.tf_config = False, None

    def _build_megatron_module(self) -> list[Any]:
        chunks = build_policy(tied=self.tied, sequence_parallel=self.engine_config.sequence_parallel)
        self.tf_config = unwrap_model(chunks[0]).config
        return chunks


def make_engine(folder: Path, *, tied: bool = True, **layout: Any) -> CpuEngine:
    redirect_cuda()
    tensor_parallel.model_parallel_cuda_manual_seed = lambda *_: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl turns sequence parallelism off on one tensor rank
        engine = CpuEngine(
            model_config=HFModelConfig(path=str(folder)),
            engine_config=McoreEngineConfig(forward_only=True, **layout),
            optimizer_config=McoreOptimizerConfig(lr=0.0, total_training_steps=1),
            checkpoint_config=CheckpointConfig(),
        )
    engine.tied = tied
    engine.initialize()
    return engine


def run(engine: CpuEngine, batch: Any) -> dict[str, Any]:
    with engine.eval_mode():
        return engine.infer_batch(batch).get("model_output", {})


def vectors(folder: Path, layouts: list[str]) -> dict[tuple[str, bool], dict[str, Any]]:
    """Means by signal, and log-probabilities with and without a request. None before the last stage."""
    results = {}
    for layout in layouts:
        for tied in (True, False):
            engine = make_engine(folder, tied=tied, **LAYOUTS.get(layout, {}))
            means, batch = {}, make_batch(make_sequences(), max_token_len_per_gpu=48)
            for name, signal in SIGNALS.items():
                tu.assign_non_tensor(batch, **{REQUEST: PLAIN | signal})
                output = run(engine, batch)
                if output:
                    means[name] = read_means(output[MEANS])
            tu.pop(batch, REQUEST)
            silent = run(engine, batch)
            assert set(silent) <= {"log_probs"}
            pairs = [part["log_probs"].values() for part in (output, silent) if part]
            results[layout, tied] = {"means": means, "log_probs": pairs, "is last": mpu.is_pipeline_last_stage()}
            mpu.destroy_model_parallel()
    return results


def truth(folder: Path) -> dict[tuple[bool, str], torch.Tensor]:
    """Means from the unsplit model, one sequence at a time, in float64 from the hidden states on."""
    found, sequences = {}, make_sequences()
    for tied in (True, False):
        model = unwrap_model(make_engine(folder, tied=tied).module[0])
        hidden = [hidden_states(model, sequence) for sequence in sequences]
        weight = (model.embedding.word_embeddings if tied else model.output_layer).weight
        for name, signal in SIGNALS.items():
            keep = [signal.get("keep_fraction", 1.0)] * len(sequences)
            found[tied, name] = core_means(hidden, sequences, weight, signal, keep).float()
        mpu.destroy_model_parallel()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a model that verl reads before it is built."""
    made = tmp_path_factory.mktemp("megatron")
    config = Qwen3Config(vocab_size=VOCAB, num_hidden_layers=4, architectures=["Qwen3ForCausalLM"])
    config.save_pretrained(made)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (made / name).write_bytes((embedded_path() / name).read_bytes())
    return made


@pytest.fixture(scope="module")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, str], torch.Tensor]:
    return run_ranks(truth, 1, tmp_path_factory.mktemp("truth"), folder)[0]


@pytest.mark.parametrize("layouts", [list(LAYOUTS)[:2], list(LAYOUTS)[2:]])  # for the time that ranks have
def test_engine_on_two_ranks_gives_the_vectors_of_one_process(folder, expected, tmp_path, layouts):
    ranks = run_ranks(vectors, 2, tmp_path, folder, layouts)
    for (layout, tied), result in [item for rank in ranks for item in rank.items()]:
        assert bool(result["means"]) == result["is last"]
        for name, means in result["means"].items():
            torch.testing.assert_close(means, expected[tied, name], rtol=0, atol=1e-6, msg=f"{layout} {tied} {name}")
        for asked, silent in zip(result["log_probs"][::2], result["log_probs"][1::2], strict=True):
            assert torch.equal(asked, silent)
    assert sum(bool((means.norm(dim=-1) > 0.01).any()) for means in expected.values()) == len(expected)
    assert "pipeline" not in layouts or not ranks[0]["pipeline", True]["is last"]


def refusals(folder: Path) -> list[str]:
    """Codes of a head whose logits are changed, and of a foreign head."""
    engine = make_engine(folder)
    model = unwrap_model(engine.module[0])
    handle = model.register_forward_hook(lambda module, args, logits: 30 * torch.tanh(logits / 30))
    with pytest.raises(ModelError) as capped:
        run(engine, make_batch(make_sequences()))
    handle.remove()
    model.output_layer.__class__ = type("Adapted", (type(model.output_layer),), {})
    engine._build_megatron_module = lambda: engine.module
    with pytest.raises(ModelError) as adapted:
        engine.initialize()
    return [caught.value.code for caught in (capped, adapted)]


def test_engine_rejects_what_it_cannot_read(folder, tmp_path):
    assert run_ranks(refusals, 1, tmp_path, folder)[0] == ["scaled-logits", "unknown-head"]


def test_a_job_with_verls_megatron_engine_is_taken(monkeypatch: pytest.MonkeyPatch):
    """The flags of docs/integrations/verl.md, through verl's own configuration and registry."""
    flags = """
        model_engine=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 +gar.method=gar-grpo
        algorithm.adv_estimator=grpo reward.reward_manager.name=gar actor_rollout_ref.rollout.n=4
    """
    with initialize_config_module("verl.trainer.config", version_base=None):
        config: Any = OmegaConf.to_container(compose("ppo_trainer", overrides=flags.split()), resolve=True)
    assert config["actor_rollout_ref"]["actor"]["strategy"] == "megatron"
    read_shaping(read_settings(config), config)
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cuda")
    monkeypatch.setenv("VERL_ENGINE_VENDOR", "nvidia")
    assert EngineRegistry.get_engine_cls("language_model", "megatron") is GarMegatronEngine
