"""verl on a CPU: one process group for this process, models made once, and ranks forked from a warm server."""

import importlib.util
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

if importlib.util.find_spec("verl") is None:
    collect_ignore_glob = ["test_*.py"]  # they run in an environment of their own
else:
    # Before anything imports verl, which reads them once; ranks and Ray's workers inherit them.
    os.environ.update(
        VERL_USE_EXTERNAL_MODULES="tests.engines.verl.platform,gar.integrations.verl.register",
        PYTHONPATH=os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")])),
        RAY_worker_niceness="0",  # Ray is as urgent as the test that waits for it
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl says which of its engines lack their libraries
        importlib.import_module("verl")  # for its warnings, once and here
    # That takes seconds: ranks are forked from a server that has done it once.
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["tests.support.ranks", "tests.engines.verl.workers"]
    )


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What verl's launcher gives to a worker, for one rank."""
    told = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(told | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"})
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Heads that are the embedding, as Qwen3-4B's, or their own, as Qwen3-8B's, and a model of images and text."""
    from tests.engines.verl.workers import save_model, save_vision_model

    folder = tmp_path_factory.mktemp("models")
    return {
        "tied": save_model(folder / "tied", tied=True),
        "untied": save_model(folder / "untied", tied=False),
        "vision": save_vision_model(folder / "vision"),
    }


@pytest.fixture(scope="session")
def tied(models: dict[str, Path]) -> Path:
    return models["tied"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray on this machine alone, and TransferQueue with one storage unit."""
    import ray
    import transfer_queue as tq

    os.environ["TRANSFER_QUEUE_ENABLE"] = "1"
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    yield
    tq.close()
    ray.shutdown()
