"""MASPO as verl trains with it: through a real TrainingWorker, against the core on the same log-probabilities."""

import importlib.util
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed: these tests run in an environment of its own", allow_module_level=True)

from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_from_nested

from gar.core import maspo_token_losses, maspo_weights
from gar.errors import ConfigError
from gar.integrations.verl.loss import MaspoLossConfig, maspo_policy_loss
from tests.engines.verl.workers import compose_config, jagged, make_sequences

pytestmark = [pytest.mark.usefixtures("group"), pytest.mark.filterwarnings("ignore:::(?!gar).*")]

LOSS = "actor_rollout_ref.actor.policy_loss"


def actor_config(folder: Path, *overrides: str) -> Any:
    config = compose_config(folder, f"{LOSS}.loss_mode=gar_maspo", *overrides)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor.model_config = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    return actor


def make_worker(actor: Any) -> TrainingWorker:
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model", model_config=actor.model_config, engine_config=actor.engine,
            optimizer_config=actor.optim, checkpoint_config=actor.checkpoint,
        )
    )  # fmt: skip
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


def make_batch(old: list[Tensor] | None = None) -> Any:
    """Sequences as verl's actor gets them, with advantages of both signs."""
    rows = make_sequences(4)
    ids = [row[0] for row in rows]
    masks = [row[2] for row in rows]
    fields = {
        "input_ids": jagged(ids), "position_ids": jagged([torch.arange(len(row)) for row in ids]),
        "prompts": jagged([row[0][: row[1]] for row in rows]), "responses": jagged([row[0][row[1] :] for row in rows]),
        "loss_mask": jagged(masks), "response_mask": jagged(masks),
        "advantages": jagged([torch.full(mask.shape, 1.5 - i) for i, mask in enumerate(masks)]),
    }  # fmt: skip
    if old is not None:
        fields["old_log_probs"] = jagged(old)
    common = {
        "use_remove_padding": True, "use_dynamic_bsz": True, "max_token_len_per_gpu": 256, "temperature": 1.0,
        "calculate_entropy": False, "compute_loss": False, "global_batch_size": 4, "global_token_num": None,
    }  # fmt: skip
    return tu.get_tensordict(fields, common)


def policys_log_probs(worker: TrainingWorker) -> list[Tensor]:
    batch = make_batch()
    found = worker.infer_batch(batch)["log_probs"]
    return list(response_from_nested(found, batch["response_mask"]).unbind())


def test_maspo_trains_with_the_cores_loss(tied):
    actor = actor_config(tied)
    worker = make_worker(actor)
    new = policys_log_probs(worker)
    generator = torch.Generator().manual_seed(0)
    old = [row + 0.5 * torch.randn(row.shape, generator=generator) for row in new]
    before = [p.full_tensor().detach().clone() for p in worker.engine.module.parameters()]
    metrics = tu.get(worker.train_batch(make_batch(old)), "metrics")

    losses, count = 0.0, 0
    for i, (fresh, stale, row) in enumerate(zip(new, old, make_sequences(4), strict=True)):
        given = fresh[None], stale[None], torch.tensor([[1.5 - i]])
        values = maspo_token_losses(*given, maspo_weights(*given))[0][row[2].bool()]
        losses, count = losses + float(values.sum()), count + len(values)
    assert metrics["actor/pg_loss"][0].aggregate() == pytest.approx(losses / count, rel=1e-4)
    assert 0 < metrics["actor/maspo_weight"][0].aggregate() < 1  # some tokens have moved, and fade
    assert metrics["grad_norm"] > 0
    after = [p.full_tensor() for p in worker.engine.module.parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_maspo_on_policy_is_the_plain_policy_gradient(tied):
    """Ratio 1: no gate, and the gradient of -A rho is that of -A log p."""
    actor = actor_config(tied)
    log_probs = torch.full((2, 3), -1.0, requires_grad=True)
    advantages, mask = torch.tensor([[2.0], [-1.0]]).expand(2, 3), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    loss, _ = maspo_policy_loss(log_probs.detach(), log_probs, advantages, mask, config=actor)
    loss.backward()
    torch.testing.assert_close(log_probs.grad, -advantages * mask / 4)


def test_maspo_is_registered_and_takes_its_settings_from_verls_configuration(tied):
    assert get_policy_loss_fn("gar_maspo") is maspo_policy_loss
    own = actor_config(
        tied,
        f"{LOSS}._target_=gar.integrations.verl.loss.MaspoLossConfig",
        f"+{LOSS}.maspo.alpha=0",
        f"+{LOSS}.maspo.sigma_base=0.2",
    )
    assert isinstance(own.policy_loss, MaspoLossConfig)
    old, new = torch.tensor([[0.25]]).log(), torch.tensor([[0.5]]).log()
    mask = torch.ones(1, 1).bool()
    losses = [
        maspo_policy_loss(old, new, torch.ones(1, 1), mask, config=config)[0].item()
        for config in (actor_config(tied), own)
    ]
    sigma = 1.03 * 0.2
    assert losses[1] == pytest.approx(-2 * math.exp(-1 / (2 * sigma**2)), rel=1e-4)
    assert losses[0] < losses[1]


def test_maspo_refuses_unknown_settings(tied):
    with pytest.raises(Exception, match=r"policy_loss\.maspo: .*sigma_bsae") as caught:
        actor_config(tied, f"{LOSS}._target_=gar.integrations.verl.loss.MaspoLossConfig", f"+{LOSS}.maspo.sigma_bsae=1")
    with pytest.raises(ConfigError, match="sigma_bsae"):
        MaspoLossConfig(maspo={"sigma_bsae": 1})
    assert "MaspoLossConfig" in str(caught.value)
