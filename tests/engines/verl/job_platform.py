"""A CPU platform for a whole job of verl with vLLM's rollouts, loaded in each of its processes."""

import os
from functools import partial
from multiprocessing import shared_memory
from typing import Any

from verl.plugin.platform import set_platform
from verl.utils import distributed

from tests.engines.verl.platform import PlatformCPU


class JobPlatform(PlatformCPU):
    def ray_resource_name(self) -> str:
        return "GPU"  # verl's pools count nothing else

    def is_ipc_supported(self) -> bool:
        return False  # weights go through shared memory

    def set_allocator_settings(self, settings: Any) -> None:
        return None


set_platform(JobPlatform())
# verl asks for "cpu:gloo,cpu:gloo", which torch rejects.
distributed.initialize_global_process_group_ray = partial(
    distributed.initialize_global_process_group_ray, backend="gloo"
)
shared_memory._SHM_NAME_PREFIX = f"/{os.environ['GAR_TEST_SEGMENTS']}"  # pyright: ignore[reportAttributeAccessIssue]
