"""The slime plugin on Megatron's parallel layouts, in 2 gloo processes, against the core on one process.

`tests/engines/slime_standin.py` stands in for slime. Megatron is the one from PyPI, on CPUs.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from gar.core import unit_rows
from tests.engines.rollouts import core_means, make_arguments, make_capturing, make_data, sequences_of, true_rewards
from tests.support.ranks import run_ranks

pytest.importorskip("megatron.core", reason="Megatron is not installed: make test-engines installs it and runs this")
pytestmark = pytest.mark.dist
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["tests.support.ranks", "pytest", "megatron.core.models.gpt", "tests.engines.slime_standin"]
)

LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor_model_parallel_size": 2},
    "sequence": {"tensor_model_parallel_size": 2},
    "context": {"context_parallel_size": 2},
    "pipeline": {"pipeline_model_parallel_size": 2},
    "virtual pipeline": {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2},
    "data": {},
}
SIGNALS: dict[str, dict[str, Any]] = {
    "plain": {},
    "thresholds": {"activation_threshold": 0.05, "expert_keep_fraction": 0.7},
    "hidden": {"kind": "hidden"},
}
HEADS = {"tied": True, "untied": False}
CASES = [(layout, head, signal) for layout in LAYOUTS for head in HEADS for signal in SIGNALS]


# What runs on each rank.


@contextmanager
def policy(layout: str, head: str, *, standin: bool = True, mtp: bool = False) -> Iterator[list[Any]]:
    """The chunks of a policy, which the plugin has caught."""
    from megatron.core import mpu

    from gar.integrations.slime import on_megatron_init
    from gar.integrations.slime.policy import policy_chunks
    from tests.engines.megatron.policy import build_policy, redirect_cuda
    from tests.engines.slime_standin import install

    redirect_cuda()
    if standin:
        install()
    mpu.initialize_model_parallel(**LAYOUTS.get(layout, {}))
    on_megatron_init(make_arguments(mtp_num_layers=1 if mtp else None))
    built = build_policy(tied=HEADS[head], mtp=mtp, sequence_parallel=layout == "sequence")
    assert [id(chunk) for chunk in policy_chunks()] == [id(chunk) for chunk in built]
    yield built
    mpu.destroy_model_parallel()


def settings(signal: dict[str, Any]) -> Any:
    return make_arguments(gar={"signal": signal}, rewards_normalization=False)


def own_means(args: Any, chunks: list[Any], sequences: list[Any]) -> Tensor | None:
    """Means from passes of the plugin's own."""
    from gar.integrations.slime.forward import sequence_means
    from gar.integrations.slime.settings import read_settings

    return sequence_means(args, chunks, sequences, [], read_settings(args).signal, device="cpu")[0]


def vectors_and_rewards(layouts: list[str]) -> dict[tuple[str, str, str], dict[str, Any]]:
    from megatron.core import mpu

    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import split_by_data_parallel_rank

    found, passes = {}, []
    for layout in layouts:
        for head in HEADS:
            further = head == "untied" and layout in ("tensor", "pipeline")
            with policy(layout, head, mtp=further) as chunks:
                layers = [module for chunk in chunks for name, module in chunk.named_modules() if name.endswith(".mtp")]
                for module in layers:
                    module.register_forward_pre_hook(lambda *_: pytest.fail("a layer for further tokens was called"))
                assert bool(layers) == (further and mpu.is_pipeline_last_stage())
                chunks[0].register_forward_pre_hook(lambda *_: passes.append(1))
                for signal in SIGNALS:
                    args = settings(SIGNALS[signal])
                    rank, num_ranks = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
                    everything = [s for part in sequences_of(make_data()) for s in part if s.positions]
                    passes.clear()
                    found[layout, head, signal] = {
                        "uneven": own_means(args, chunks, everything if rank else []),
                        "passes": len(passes),
                        "means": own_means(args, chunks, everything[rank::num_ranks]),
                        "is last": mpu.is_pipeline_last_stage(),
                        "data": (rank, num_ranks),
                    }
                    share = split_by_data_parallel_rank(make_data(), num_ranks)[rank]
                    postprocess(args, 0, share)
                    found[layout, head, signal]["shaped"] = share
                for signal, more in captured(chunks).items():
                    found[layout, head, signal] |= more
    return found


def captured(chunks: list[Any]) -> dict[str, dict[str, Any]]:
    """Means by signal from slime's log-probability pass, and the rewards of the plain signal."""
    from megatron.core import mpu

    from gar.integrations.slime import postprocess
    from gar.integrations.slime.forward import captured_means
    from gar.integrations.slime.policy import captured_pass
    from gar.integrations.slime.settings import read_settings
    from tests.engines.slime_standin import compute_log_prob, split_by_data_parallel_rank

    args = {
        name: make_capturing(gar={"signal": signal}, rewards_normalization=False) for name, signal in SIGNALS.items()
    }
    share = split_by_data_parallel_rank(make_data(), mpu.get_data_parallel_world_size())[mpu.get_data_parallel_rank()]
    sequences, _ = sequences_of(share)
    compute_log_prob(args["plain"], chunks, share)
    seen, found = captured_pass(), {}
    for name, each in args.items():
        signal, schedule = read_settings(each).signal, share["micro_batch_indices"]
        is_last = mpu.is_pipeline_last_stage()
        means = captured_means(each, seen, schedule, sequences, signal) if is_last else None
        found[name] = {"captured means": means}
    compute_log_prob(args["plain"], chunks, share)
    postprocess(args["plain"], 0, share)
    found["plain"]["captured"] = share
    return found


def reference(head: str) -> dict[str, dict[str, Any]]:
    """Means by the core's arithmetic, from a pass over each whole sequence and the whole head."""
    from tests.engines.megatron.policy import hidden_states

    with policy("single", head) as chunks:
        model = chunks[0].module
        responses, anchors = sequences_of(make_data())
        hidden = [hidden_states(model, sequence) for sequence in responses + anchors]
        weight = model.embedding.word_embeddings.weight if HEADS[head] else model.output_layer.weight
        found = {}
        for name, signal in SIGNALS.items():
            keep = [1.0] * len(responses) + [signal.get("expert_keep_fraction", 1.0)] * len(anchors)
            means = core_means(hidden, responses + anchors, weight, signal, keep)
            plain = core_means(hidden, responses + anchors, weight, signal, [1.0] * len(keep))
            found[name] = {"plain": plain, "responses": means[: len(responses)], "anchors": means[len(responses) :]}
        return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    ranks: list[dict] = [{}, {}]
    for half in (list(LAYOUTS)[:2], list(LAYOUTS)[2:]):  # for the time that ranks have
        more = run_ranks(vectors_and_rewards, 2, tmp_path_factory.mktemp("ranks"), half)
        for rank, found_in_half in zip(ranks, more, strict=True):
            rank |= found_in_half
    return ranks


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return {head: run_ranks(reference, 1, tmp_path_factory.mktemp(head), head)[0] for head in HEADS}


def ranks_of(found: list[dict], case: tuple[str, str, str]) -> list[dict[str, Any]]:
    """The results of the ranks of the last pipeline stage."""
    return [rank[case] for rank in found if rank[case]["is last"]]


def joined(ranks: list[dict[str, Any]], key: str) -> Tensor:
    """A value per response, in slime's order, from the shares of the data-parallel ranks."""
    num_ranks = ranks[0]["data"][1]
    shares = [torch.tensor(rank[key]["rewards"], dtype=torch.float64) for rank in ranks[:num_ranks]]
    whole = torch.zeros(sum(map(len, shares)), dtype=torch.float64)
    for rank, share in enumerate(shares):
        whole[rank::num_ranks] = share
    return whole


def test_every_layout_gives_the_vectors_and_rewards_of_one_process(found, truth):
    """Vectors of the plugin's passes and of slime's, rewards of both, and equal numbers of passes on all ranks.

    Two policies have layers for multi-token prediction, which change nothing.
    """
    responses, anchors = sequences_of(make_data())
    has_tokens = torch.tensor([bool(s.positions) for s in responses + anchors])
    for case in CASES:
        _, head, signal = case
        means, ranks = truth[head][signal], ranks_of(found, case)
        rewards, _ = true_rewards(make_data(), means["responses"], means["anchors"])
        torch.testing.assert_close(joined(ranks, "shaped"), rewards, rtol=0, atol=1e-6, msg=str(case))
        assert len({rank["shaped"]["gar/alignment_mean"][0] for rank in ranks}) == 1  # on all, to the last bit
        if signal == "plain":
            torch.testing.assert_close(joined(ranks, "captured"), rewards, rtol=0, atol=1e-6, msg=str(case))
        for rank in ranks:
            (first, step), assert_close = rank["data"], torch.testing.assert_close
            mine = unit_rows(means["plain"])[has_tokens][first::step]
            assert_close(unit_rows(rank["means"]), mine, rtol=0, atol=1e-6, msg=str(case))
            mine = unit_rows(means["responses"])[first::step]
            assert_close(unit_rows(rank["captured means"]), mine, rtol=0, atol=1e-6, msg=str(case))
            assert len(rank["uneven"]) == (int(has_tokens.sum()) if first else 0)
            assert "prompt" not in rank["shaped"]  # the logger would take it for a number
        assert found[0][case]["passes"] == found[1][case]["passes"] > (3 if case[0] == "data" else 0)
    first = found[0]["pipeline", "tied", "plain"]  # a stage before the last
    assert (first["is last"], first["means"], first["shaped"]["rewards"]) == (False, None, make_data()["rewards"])
