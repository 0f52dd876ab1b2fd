"""Devices are dealt out evenly, and what cannot be dealt out is rejected."""

import pytest
import torch

from gar.comparison import workers
from gar.comparison.workers import local_workers
from gar.errors import ConfigError


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many GPUs, of which CUDA_VISIBLE_DEVICES may name some; it has six cores."""

    def make(count: int, named: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(workers, "_num_cores", lambda: 6)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if named is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)

    return make


@pytest.mark.parametrize(
    ("count", "named", "options", "devices"),
    [
        (0, None, {}, [None] * 6),
        (0, "", {"number": 2}, [None, None]),
        (4, None, {}, ["0", "1", "2", "3"]),
        (4, None, {"gpus": 2}, ["0", "1"]),
        (2, "5,GPU-7", {}, ["5", "GPU-7"]),
        (8, None, {"number": 2}, ["0", "1"]),  # a process that sees several is rejected
        (8, None, {"launch": "torchrun", "number": 3}, ["0,1", "2,3", "4,5"]),
        (2, None, {"number": 3}, ["0", "1", "0"]),
        (8, None, {"launch": "accelerate launch"}, ["0,1,2,3,4,5,6,7"]),
        (8, None, {"launch": "torchrun", "number": 2, "gpus": 4}, ["0,1", "2,3"]),
    ],
)
def test_local_workers_deal_out_devices(machine, count, named, options, devices):
    machine(count, named)
    assert local_workers(**options).devices == devices


def test_local_workers_read_the_launcher_as_a_shell_does(machine):
    machine(0)
    made = local_workers(launch="accelerate launch --config_file 'my file.yaml'")
    assert made.launcher == ["accelerate", "launch", "--config_file", "my file.yaml"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gpus": 3}, "--gpus 3: 2 are visible. CUDA_VISIBLE_DEVICES says which those are."),
        ({"launch": "torchrun 'a"}, "is no command: No closing quotation"),
    ],
)
def test_local_workers_refuse_and_say_why(machine, options, text):
    machine(2)
    with pytest.raises(ConfigError) as caught:
        local_workers(**options)
    assert text in str(caught.value)
