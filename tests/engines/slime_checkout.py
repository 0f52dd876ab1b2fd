"""slime itself, from a checkout, in a process without GPU, Ray and SGLang: those names are there and do nothing.

Of slime nothing is changed. Ray's object store hands back what it was given.
"""

import importlib.abc
import importlib.machinery
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
import torch._dynamo

ABSENT = (
    "sglang", "sglang_router", "wandb", "torch_memory_saver", "tensorboard", "requests", "httpx", "aiohttp", "pybase64",
    "pylatexenc", "apex", "mbridge", "ray", "megatron.training",
)  # fmt: skip


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that slime imports and that what is tested here does not use."""

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

    import ray  # the one below that does nothing

    ray.remote = remote
    ray.put = lambda value, **_: value
    ray.get = lambda value: value
    _use_the_cpu()


def _use_the_cpu() -> None:
    """Newer versions of slime ask an accelerator of their own, which can be chosen."""
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

    Cpu.__abstractmethods__ = frozenset()  # the rest is not asked for
    accelerator.set_accelerator(Cpu())


class TrainingBegins(Exception):
    """Raised in the place of slime's training, with the batch that it would train on."""


def step_before_training(args: Any, chunks: list[Any], share: dict[str, Any], postprocess: Any) -> list[str]:
    """Run `train_actor` of slime's actor until it trains, with a reference of other weights. Returns its passes.

    Of the actor only what Ray and its checkpoints would have given it is put in by hand.
    """
    from slime.backends.megatron_utils import actor as module

    passes: list[str] = []

    class Weights:
        backup_tags = ("actor", "ref")

        def restore(self, tag: str) -> None:
            """Those of the reference are the policy's with another sign."""
            if tag != actor._active_model_tag:
                for chunk in chunks:
                    for parameter in chunk.parameters():
                        parameter.data.neg_()

    def train(*_: Any) -> None:
        raise TrainingBegins

    class Actor(module.MegatronTrainRayActor):
        def compute_log_prob(self, *arguments: Any, store_prefix: str = "") -> Any:
            passes.append(store_prefix)
            return super().compute_log_prob(*arguments, store_prefix=store_prefix)

    actor = object.__new__(Actor)
    actor.args, actor.model, actor.rollout_data_postprocess = args, chunks, postprocess
    actor.optimizer = actor.opt_param_scheduler = None
    actor.weights_backuper, actor._active_model_tag = Weights(), "actor"
    torch._dynamo.config.disable = True  # slime has its log-probabilities compiled, which takes a CPU a minute
    module.Timer().start_time.setdefault("train_wait", 0.0)
    module.train = train
    try:
        actor.train_actor(0, share)
    except TrainingBegins:
        return passes
    raise AssertionError("slime's actor did not train")
