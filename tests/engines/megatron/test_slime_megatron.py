"""The slime plugin on Megatron's own parallel layouts, 2 gloo processes, against the core on one process.

slime's side is the stand-in of `tests/engines/slime_standin.py`; Megatron is the one from PyPI, on CPUs.
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
    "thresholds": {"activation_threshold": 0.05, "anchor_keep_fraction": 0.7},
    "hidden": {"kind": "hidden"},
}
HEADS = {"tied": True, "untied": False}
CASES = [(layout, head, signal) for layout in LAYOUTS for head in HEADS for signal in SIGNALS]


# What runs on each rank.


@contextmanager
def policy(layout: str, head: str, *, standin: bool = True, mtp: bool = False) -> Iterator[list[Any]]:
    """The chunks that the plugin caught while they were built."""
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
    built = build_policy(tied=HEADS[head], sequence_parallel=layout == "sequence", mtp=mtp)
    assert [id(chunk) for chunk in policy_chunks()] == [id(chunk) for chunk in built]
    yield built
    mpu.destroy_model_parallel()


def settings(signal: dict[str, Any]) -> Any:
    return make_arguments(gar={"signal": signal}, rewards_normalization=False)


def own_means(args: Any, chunks: list[Any], sequences: list[Any]) -> Tensor | None:
    """From a pass of our own."""
    from gar.integrations.slime.forward import ScoredSequence, sequence_means
    from gar.integrations.slime.settings import read_settings

    scored = [ScoredSequence.cut(sequence, "cpu") for sequence in sequences]
    return sequence_means(args, chunks, scored, read_settings(args).signal, device="cpu")


def vectors_and_rewards(layouts: list[str]) -> dict[tuple[str, str, str], dict[str, Any]]:
    from megatron.core import mpu

    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import split_by_data_parallel_rank

    found = {}
    for layout in layouts:
        for head in HEADS:
            with policy(layout, head) as chunks:
                for signal in SIGNALS:
                    args = settings(SIGNALS[signal])
                    rank, num_ranks = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
                    everything = [s for part in sequences_of(make_data()) for s in part if s.positions]
                    found[layout, head, signal] = {
                        "means": own_means(args, chunks, everything[rank::num_ranks]),
                        "no means": own_means(args, chunks, []),
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
    """Means by signal from slime's own log-probability pass; rewards, and the tokens that pass for them, of one."""
    from megatron.core import mpu

    from gar.integrations.slime import postprocess
    from gar.integrations.slime.capture import captured_pass
    from gar.integrations.slime.forward import ScoredSequence, captured_means
    from gar.integrations.slime.settings import read_settings
    from tests.engines.slime_standin import compute_log_prob, split_by_data_parallel_rank

    args = {
        name: make_capturing(gar={"signal": signal}, rewards_normalization=False) for name, signal in SIGNALS.items()
    }
    share = split_by_data_parallel_rank(make_data(), mpu.get_data_parallel_world_size())[mpu.get_data_parallel_rank()]
    sequences = [ScoredSequence.whole(sequence, "cpu") for sequence in sequences_of(share)[0]]
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


def with_further_layers(layout: str) -> Tensor | None:
    """Means of the responses by a policy with a layer for multi-token prediction, which is never called."""
    with policy(layout, "untied", mtp=True) as chunks:
        layers = [module for chunk in chunks for name, module in chunk.named_modules() if name.endswith(".mtp")]
        for module in layers:
            module.register_forward_pre_hook(lambda *_: pytest.fail("the further layers were called"))
        means = own_means(settings({}), chunks, [s for s in sequences_of(make_data())[0] if s.positions])
        assert means is None or layers
        return means


def uneven() -> dict[str, Any]:
    """One data-parallel rank has all the sequences, the other none: both make as many passes."""
    from megatron.core import mpu

    with policy("data", "tied") as chunks:
        passes = []
        chunks[0].register_forward_pre_hook(lambda *_: passes.append(1))
        everything = [s for s in sequences_of(make_data())[0] if s.positions] if mpu.get_data_parallel_rank() else []
        means = own_means(settings({}), chunks, everything)
        return {"passes": len(passes), "means": means}


def reference(head: str) -> dict[str, dict[str, Any]]:
    """One sequence a pass, the whole of it, the whole head, and the core's arithmetic."""
    from tests.engines.megatron.policy import hidden_states

    with policy("single", head) as chunks:
        model = chunks[0].module
        responses, anchors = sequences_of(make_data())
        hidden = [hidden_states(model, sequence) for sequence in responses + anchors]
        weight = model.embedding.word_embeddings.weight if HEADS[head] else model.output_layer.weight
        found = {}
        for name, signal in SIGNALS.items():
            keep = [1.0] * len(responses) + [signal.get("anchor_keep_fraction", 1.0)] * len(anchors)
            means = core_means(hidden, responses + anchors, weight, signal, keep)
            plain = core_means(hidden, responses + anchors, weight, signal, [1.0] * len(keep))
            found[name] = {"plain": plain, "responses": means[: len(responses)], "anchors": means[len(responses) :]}
        return found


# What is said of it.


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    ranks: list[dict] = [{}, {}]
    for half in (list(LAYOUTS)[:2], list(LAYOUTS)[2:]):  # each well within the time that ranks have on a busy machine
        more = run_ranks(vectors_and_rewards, 2, tmp_path_factory.mktemp("ranks"), half)
        for rank, found_in_half in zip(ranks, more, strict=True):
            rank |= found_in_half
    return ranks


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return {head: run_ranks(reference, 1, tmp_path_factory.mktemp(head), head)[0] for head in HEADS}


def ranks_of(found: list[dict], case: tuple[str, str, str]) -> list[dict[str, Any]]:
    """What the ranks of the last pipeline stage found."""
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
    """Vectors of our own passes and of slime's, and rewards of both."""
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
            assert rank["no means"].shape == (0, 32)
            assert "prompt" not in rank["shaped"]  # the logger would take it for a number
    first = found[0]["pipeline", "tied", "plain"]  # a stage before the last
    assert (first["is last"], first["means"], first["shaped"]["rewards"]) == (False, None, make_data()["rewards"])


@pytest.mark.parametrize("layout", ["tensor", "pipeline"])
def test_layers_for_multi_token_prediction_change_no_vector(truth, tmp_path, layout):
    has_tokens = torch.tensor([bool(s.positions) for s in sequences_of(make_data())[0]])
    expected = unit_rows(truth["untied"]["plain"]["responses"])[has_tokens]
    means = [m for m in run_ranks(with_further_layers, 2, tmp_path, layout) if m is not None]
    for rank in means:
        torch.testing.assert_close(unit_rows(rank), expected, rtol=0, atol=1e-6)
    assert means


def test_ranks_make_equal_numbers_of_passes(tmp_path):
    idle, busy = run_ranks(uneven, 2, tmp_path)
    assert idle["passes"] == busy["passes"] > 3
    assert len(idle["means"]) == 0
    assert bool((busy["means"] != 0).any(-1).all())
