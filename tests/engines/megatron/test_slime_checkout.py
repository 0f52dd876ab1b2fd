"""The plugin on unmodified slime, in 2 gloo processes with Megatron on CPUs. GAR_SLIME_CHECKOUT names a checkout.

slime's own code runs from the converter to the logger, except for its training. Its parser reads the launcher's flags.
"""

import asyncio
import importlib.abc
import importlib.machinery
import itertools
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import torch._dynamo
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from gar.core import group_advantages
from gar.integrations.slime.settings import LOG_PROB_HOOK, SLIME, slime_flag
from gar.models.embedded import load_embedded
from tests.conformance.expectation import group_index
from tests.conformance.groups import GROUP_SIZE, GROUPS, make_rollouts
from tests.docs.pages import ROOT
from tests.docs.test_scripts import slime_arguments
from tests.engines.megatron.test_slime_megatron import LAYOUTS, policy
from tests.engines.rollouts import core_means, make_arguments, make_samples, sequences_of, true_rewards
from tests.support.processes import completed
from tests.support.ranks import join_group, run_ranks
from tests.support.rules import named_in

pytest.importorskip("megatron.core", reason="Megatron is not installed: make test-engines installs it")
pytestmark = pytest.mark.dist

CHECKOUT = os.environ.get("GAR_SLIME_CHECKOUT")
if not CHECKOUT:
    pytest.skip("GAR_SLIME_CHECKOUT is not set: it names a checkout of slime >= 0.3.0", allow_module_level=True)

RIGHT = "<think> 3 + 4 = 7 </think> <answer> 7 </answer>"
FILTERED = {
    "mixed": [RIGHT, RIGHT.replace("> 7 <", "> 8 <")],
    "all right": [RIGHT, RIGHT.replace("3 + 4", "4 + 3")],
    "all right and the same": [RIGHT, RIGHT],
    "all wrong": [RIGHT.replace("> 7 <", "> 8 <"), RIGHT.replace("> 7 <", "> 9 <")],
}
"""Texts of a group of two, by what it is."""

CAPTURES: dict[str, dict[str, Any]] = {
    "own": {"gar": {"advantage": {"ddof": 1, "eps": 1e-6}}},
    "logprob": {"gar": {"capture": "logprob", "advantage": {"ddof": 1, "eps": 1e-6}}, **LOG_PROB_HOOK},
}


def arguments(layout: str, **changes: Any) -> Any:
    """The plugin's arguments and those that slime's own functions read."""
    off = """balance_data balance_by_flops use_rollout_entropy custom_advantage_function_path reward_key use_wandb
        use_tensorboard wandb_always_use_train_step ci_test log_multi_turn log_passrate log_correct_samples
        use_rollout_routing_replay save_debug_train_data"""
    values = {
        "n_samples_per_prompt": GROUP_SIZE,
        "rollout_batch_size": len(GROUPS),
        "global_batch_size": 14,
        "rollout_top_p": 1.0,
        "kl_loss_type": "k1",
        "qkv_format": "thd",
        "log_probs_chunk_size": -1,
        "sequence_parallel": layout == "sequence",
    }
    return make_arguments(**dict.fromkeys(off.split()) | values | changes)


def samples() -> list[Any]:
    from slime.utils.types import Sample

    found = make_samples(Sample)
    for sample in found:
        sample.status, sample.rollout_log_probs = Sample.Status.COMPLETED, [-1.0] * sample.response_length
    return found


ABSENT = (
    "sglang", "sglang_router", "wandb", "torch_memory_saver", "tensorboard", "requests", "httpx", "aiohttp", "pybase64",
    "pylatexenc", "apex", "mbridge", "ray", "megatron.training",
)  # fmt: skip


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that slime imports but does not need here."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == root or name.startswith(f"{root}.") for root in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock(name=spec.name)
        module.__path__ = []
        module.__spec__ = spec
        return module

    def exec_module(self, module: Any) -> None:
        pass


def install(checkout: str) -> None:
    """Make `slime` importable from a checkout, for this process."""
    sys.path.insert(0, checkout)
    sys.meta_path.insert(0, _Absent())

    def remote(decorated: Any = None, **_: Any) -> Any:
        if decorated is None:
            return remote
        decorated.__ray_metadata__ = SimpleNamespace(modified_class=decorated)
        return decorated

    import ray  # an absent one

    ray.remote = remote
    ray.put = lambda value, **_: value
    ray.get = lambda value: value
    _use_the_cpu()


def _use_the_cpu() -> None:
    """Set the accelerator of newer versions of slime."""
    try:
        from slime.utils import accelerator
    except ImportError:
        return

    class Cpu(accelerator.Accelerator):
        name = device_type = "cpu"

        def is_available(self) -> bool:
            return True

        def current_device(self) -> str:
            return "cpu"

        def device(self, index: Any = None) -> torch.device:
            return torch.device("cpu")

    Cpu.__abstractmethods__ = frozenset()
    accelerator.set_accelerator(Cpu())


class TrainingBegins(Exception):
    """Raised when slime's training begins."""


def step_before_training(args: Any, chunks: list[Any], share: dict[str, Any], postprocess: Any) -> list[str]:
    """Run `train_actor` of slime's actor until it trains, with a reference of different weights. Returns its passes."""
    from slime.backends.megatron_utils import actor as module

    passes: list[str] = []

    class Weights:
        backup_tags = ("actor", "ref")

        def restore(self, tag: str) -> None:
            """The weights of the reference are the policy's with the opposite sign."""
            if tag != actor._active_model_tag:
                for chunk in chunks:
                    for parameter in chunk.parameters():
                        parameter.data.neg_()

    def train(*_: Any) -> None:
        raise TrainingBegins

    class Actor(module.MegatronTrainRayActor):
        def __init__(self):  # without the model that slime's loads
            self.args, self.model, self.rollout_data_postprocess = args, chunks, postprocess
            self.optimizer = self.opt_param_scheduler = None
            self.weights_backuper, self._active_model_tag = Weights(), "actor"

        def compute_log_prob(self, *arguments: Any, store_prefix: str = "") -> Any:
            passes.append(store_prefix)
            return super().compute_log_prob(*arguments, store_prefix=store_prefix)

    torch._dynamo.config.disable = True  # slime compiles its log-probabilities, which takes a minute on a CPU
    module.Timer().start_time.setdefault("train_wait", 0.0)
    module.train = train
    actor = Actor()
    try:
        actor.train_actor(0, share)
    except TrainingBegins:
        return passes
    raise AssertionError("slime's actor did not train")


def refilled(checkout: str, path: str | None) -> dict[str, Any]:
    """A rollout by slime's own loop with a filter. The groups of each request come in the order of `FILTERED`."""
    install(checkout)
    from slime.rollout import sglang_rollout as module
    from slime.utils.types import Sample

    _, tokenizer = load_embedded()
    processing: Any = importlib.import_module("slime.utils.processing_utils")
    processing.load_tokenizer = lambda *_, **__: tokenizer
    numbers = itertools.count()

    def group(texts: list[str]) -> list[Any]:
        number, prompt = next(numbers), tokenizer.encode("3+4=")
        found = []
        for i, text in enumerate(texts):
            ids = [*tokenizer.encode(text), tokenizer.eos_token_id]
            anchors = ["<think> ok 7 </think> <answer> 7 </answer>"]
            found.append(
                Sample(
                    group_index=number, index=10 * number + i, prompt="3+4=", tokens=prompt + ids, response=text,
                    response_length=len(ids), label="7", reward=float("> 7 <" in text), metadata={"anchors": anchors},
                    status=Sample.Status.COMPLETED,
                )
            )  # fmt: skip
        return found

    class State:
        def __init__(self, args: Any):
            self.remaining_batch_size, self.pendings = 0, set()

        def submit_generate_tasks(self, samples: Any) -> None:
            for texts in samples:
                self.remaining_batch_size += 1
                self.pendings = {*self.pendings, asyncio.ensure_future(asyncio.sleep(0, group(texts)))}

        def reset(self) -> None:
            pass

    source, asked = itertools.cycle(FILTERED.values()), []

    def data_source(number: int) -> list[list[str]]:
        asked.append(number)
        return list(itertools.islice(source, number))

    async def abort(*_: Any) -> list[Any]:
        return []

    module.GenerateState, module.abort = State, abort
    args = arguments(
        "tensor", n_samples_per_prompt=2, rollout_batch_size=4, over_sampling_batch_size=4, rollout_global_dataset=True,
        dynamic_sampling_filter_path=path, rollout_sample_filter_path=None, rollout_all_samples_process_path=None,
        gar={"method": "gar-grpo"}, reward_key=None,
    )  # fmt: skip
    output, _ = asyncio.run(module.generate_rollout_async(args, 0, data_source))
    return {
        "kept": [[sample.response for sample in group] for group in output.samples],
        "metrics": output.metrics, "asked": len(asked),
    }  # fmt: skip


def test_slimes_loop_refills_what_gars_filter_drops(tmp_path):
    (found,) = run_ranks(refilled, 1, tmp_path / "gar", CHECKOUT, "gar.integrations.slime.keeps_signal")
    kept = {name for name, texts in FILTERED.items() if texts in found["kept"]}
    assert (len(found["kept"]), kept) == (4, {"mixed", "all right"})
    assert found["asked"] > 1
    counts = {name.rpartition("drop_")[2]: count for name, count in found["metrics"].items()}
    assert set(counts) == {"no_signal_all_right", "no_signal_all_wrong"}
    stock = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
    (found,) = run_ranks(refilled, 1, tmp_path / "stock", CHECKOUT, stock)
    assert found["kept"] == [FILTERED["mixed"]] * 4


PARSE = """
import argparse, json, sys
from tests.engines.megatron.test_slime_checkout import install
install(sys.argv[1])
from slime.utils.arguments import get_slime_extra_args_provider
parser = get_slime_extra_args_provider()(argparse.ArgumentParser(allow_abbrev=False))
args, rest = parser.parse_known_args(sys.argv[2:])
print(json.dumps([{k: v for k, v in vars(args).items() if isinstance(v, str | int | float | list | None)}, rest]))
"""


@pytest.mark.parametrize("size", ["4B", "8B"])
def test_slime_parses_the_launchers_flags_and_its_own_scripts_have_the_others(tmp_path, size):
    given = slime_arguments(tmp_path, size)[1:]
    done = completed([sys.executable, "-c", PARSE, CHECKOUT, *given], check=True)
    parsed, rest = json.loads(done.stdout.splitlines()[-1])
    assert (parsed["num_rollout"], parsed["rollout_batch_size"], parsed["n_samples_per_prompt"]) == (400, 128, 16)
    assert parsed["custom_convert_samples_to_train_data_path"] == "gar.integrations.slime.convert_samples"
    assert parsed["eval_prompt_data"] == ["math-500", str(tmp_path / "held-out.jsonl")]
    named = {name for rule in SLIME.rules for name in (*rule.names.split(), *named_in(rule)) if name.startswith("--")}
    # A rule about a flag that is not there never fires. The newest slime has one format only.
    assert named - set(map(slime_flag, parsed)) <= {"--qkv-format"}
    # Megatron and SGLang parse the rest. Their parsers are only in slime's container.
    others = {word for word in rest if word.startswith("--")}
    assert rest[rest.index("--tensor-model-parallel-size") + 1] == "4"
    assert others <= flags_in(*Path(str(CHECKOUT), "scripts").rglob("*.sh"))


CONVERT = """
import runpy, sys
from tests.engines.megatron.test_slime_checkout import install
install(sys.argv[1])
sys.argv = sys.argv[1:]
runpy.run_path(f"{sys.argv[0]}/tools/convert_torch_dist_to_hf.py", run_name="__main__")
"""


def test_slimes_converter_makes_a_folder_for_gar_eval_of_megatrons_checkpoint(tmp_path):
    """By the documented command, with all weights the same to the last bit."""
    save = "import sys; from tests.engines.megatron.test_slime_checkout import save_checkpoint as s; s(sys.argv[1])"
    completed([sys.executable, "-c", save, tmp_path], check=True)
    page = (ROOT / "docs" / "integrations" / "slime.md").read_text()
    (command,) = re.findall(r"convert_torch_dist_to_hf\.py((?:.*\\\n)*.*)", page)
    given = load_embedded()[0]
    values = {
        "--input-dir": tmp_path / "checkpoint", "--output-dir": tmp_path / "converted",
        "--origin-hf-dir": tmp_path / "origin", "--vocab-size": given.config.vocab_size,
    }  # fmt: skip
    flags = re.findall(r"--[\w-]+", command)
    assert set(flags) == set(values)
    words = [str(word) for flag in flags for word in (flag, values[flag])]
    completed([sys.executable, "-c", CONVERT, CHECKOUT, *words], check=True)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "converted").state_dict()
    assert set(found) == set(given.state_dict())
    assert all(torch.equal(found[name], weight) for name, weight in given.state_dict().items())
    AutoTokenizer.from_pretrained(tmp_path / "converted")


def flags_in(*paths: Path) -> set[str]:
    return set(re.findall(r"--[\w-]+", "\n".join(path.read_text() for path in paths)))


# What runs on each rank.


def save_checkpoint(folder: str) -> None:
    """The embedded model as Megatron saves it, with the arguments that the converter reads, and by Hugging Face.

    Megatron writes in processes of its own, which a rank of `run_ranks` may not have.
    """
    from megatron.core import dist_checkpointing, mpu

    from tests.engines.megatron.policy import build_qwen3, redirect_cuda

    redirect_cuda()
    join_group(0, 1, Path(folder))
    mpu.initialize_model_parallel()
    model, tokenizer = load_embedded()
    model.save_pretrained(f"{folder}/origin")
    tokenizer.save_pretrained(f"{folder}/origin")
    policy = build_qwen3(model).module
    names = ("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels")
    args = SimpleNamespace(**{name: getattr(policy.config, name) for name in names}, q_lora_rank=None)
    args.vocab_size = model.config.vocab_size
    Path(folder, "checkpoint").mkdir()
    dist_checkpointing.save({**policy.sharded_state_dict(), "args": args}, f"{folder}/checkpoint")


def through_slime(checkout: str, layout: str) -> dict[str, Any]:
    """A step of slime's actor up to its training with each kind of `capture`, and what slime logs."""
    install(checkout)
    found: dict[str, Any] = {}
    with policy(layout, "tied", standin=False) as chunks:
        from megatron.core import mpu
        from slime.backends.megatron_utils.actor import MegatronTrainRayActor

        import gar.integrations.slime as plugin

        for capture, changes in CAPTURES.items():
            args = arguments(layout, **changes)
            data = plugin.convert_samples(args, samples())
            raw = {key: data[key] for key in ("tokens", "response_lengths", "prompt")}
            actor = bare(MegatronTrainRayActor, args=args)
            share = actor._get_rollout_data(split(args, chunks, data))
            passes = step_before_training(args, chunks, share, plugin.postprocess)
            hooks = [module._forward_pre_hooks for chunk in chunks for module in chunk.modules()]
            found[capture] = {
                "share": share, "passes": passes, "hooks": sum(map(len, hooks)), "logged": log(args, share),
                "is last": mpu.is_pipeline_last_stage(),
            }  # fmt: skip
        if layout == "single":
            found["truth"] = truth(raw, chunks[0].module)
    return found


def split(args: Any, chunks: list[Any], data: dict[str, Any]) -> list[Any]:
    """The ranks' shares from slime's rollout manager."""
    from megatron.core import mpu
    from slime.ray.rollout import RolloutManager

    config = {
        "dp_size": mpu.get_data_parallel_world_size(), "cp_size": mpu.get_context_parallel_world_size(),
        "vpp_size": len(chunks), "microbatch_group_size_per_vp_stage": 2 if len(chunks) > 1 else 1,
    }  # fmt: skip
    return bare(RolloutManager, args=args, train_parallel_config=config)._split_train_data_by_dp(data)


def bare(kind: Any, **values: Any) -> Any:
    """One of slime's objects with these attributes alone, without what its constructor starts."""

    class Bare(kind):
        def __init__(self):
            vars(self).update(values)

    return Bare()


def log(args: Any, share: dict[str, Any]) -> dict[str, float]:
    """Metrics of slime's logger, on the rank that logs."""
    from slime.backends.megatron_utils import actor

    logger = getattr(actor, "log_rollout_data", None) or actor.train_metric_utils.log_rollout_data
    module = __import__(logger.__module__, fromlist=["logging_utils"])
    written: dict[str, float] = {}
    module.logging_utils.log = lambda _, metrics, step_key: written.update(metrics)
    logger(0, args, share)
    return written


def truth(raw: dict[str, Any], model: Any) -> Tensor:
    from tests.engines.megatron.policy import hidden_states

    responses, anchors = sequences_of(raw)
    means = [
        core_means(
            [hidden_states(model, s) for s in part], part, model.embedding.word_embeddings.weight, {}, [1.0] * len(part)
        )
        for part in (responses, anchors)
    ]
    return true_rewards(raw, *means)[0]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_ranks(through_slime, 1, tmp_path_factory.mktemp("one"), CHECKOUT, "single")[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slime_itself_trains_on_the_rewards_of_one_process(one, tmp_path, layout):
    ranks = run_ranks(through_slime, 2, tmp_path, CHECKOUT, layout)
    expected = group_advantages(one["truth"], group_index(), scale="std", ddof=1, eps=1e-6)
    for capture in CAPTURES:
        found = [rank[capture] for rank in ranks]
        assert all((rank["passes"], rank["hooks"]) == (["ref_", ""], 0) for rank in found)
        for share in (rank["share"] for rank in found if rank["is last"]):
            # A reward off by 1e-6 moves an advantage by 1e-6 over its group's standard deviation, which an all-right
            # group has from its bonuses alone: here no smaller than 1e-3.
            rewards = torch.tensor(share["rewards"])
            torch.testing.assert_close(rewards, expected[share["sample_indices"]].float(), rtol=0, atol=1e-5)
            assert len(share["log_probs"]) == len(rewards)
            for advantages, reward in zip(share["advantages"], share["rewards"], strict=True):
                assert torch.equal(advantages, torch.full_like(advantages, reward))
        logged, alignment = [rank["logged"] for rank in found if rank["logged"]], one[capture]["share"]
        assert logged
        for metrics in logged:
            mean = alignment["gar/alignment_mean"][0]
            assert metrics["rollout/gar/alignment_mean"] == pytest.approx(mean, abs=1e-6)
            assert metrics["rollout/gar/verified_fraction"] == pytest.approx(
                sum(rollout.verified for rollout in make_rollouts()) / 28
            )
            assert "rollout/prompt" not in metrics
