"""The measurement of `capture`, on a few problems."""

import multiprocessing

import pytest

from tests.engines.megatron.capture_cost import measured
from tests.support.ranks import run_ranks

pytest.importorskip("megatron.core", reason="Megatron is not installed: make test-engines installs it and runs this")
pytestmark = pytest.mark.dist
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["tests.support.ranks", "pytest", "megatron.core.models.gpt", "tests.engines.slime_standin"]
)


def test_capture_cost_measures_that_fewer_tokens_pass_for_the_same_rewards(tmp_path):
    (found,) = run_ranks(measured, 1, tmp_path, 3, 1)
    assert found["slime's pass"]["tokens"] > found["own"]["tokens"] > found["logprob"]["tokens"] > 0
    assert found["own"]["rewards"] == pytest.approx(found["logprob"]["rewards"], abs=1e-5)
    assert len(found["own"]["seconds"]) == len(found["logprob"]["seconds"]) == 2
