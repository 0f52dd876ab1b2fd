"""A CPU platform for verl, which has platforms for accelerators alone."""

from contextlib import nullcontext
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, set_platform

_RESULTS: dict[str, Any] = {
    **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"), 0),
    **dict.fromkeys(("empty_cache", "ipc_collect", "reset_peak_memory_stats")),
    **dict.fromkeys(("manual_seed", "manual_seed_all", "set_rng_state")),
    "get_device_name": "cpu",
    "mem_get_info": (0, 0),
}


class _Device:
    """`torch.cpu` with the functions of `torch.cuda` that verl calls on every device."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: _RESULTS[name]) if name in _RESULTS else getattr(torch.cpu, name)


class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module: Any = _Device()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"  # verl moves tensors `.to(current_device())`

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return nullcontext()

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_noset_envvars(self) -> list[str]:
        return []


PlatformCPU.__abstractmethods__ = frozenset()  # nothing calls the others
set_platform(PlatformCPU())
