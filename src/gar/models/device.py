"""The device of an evaluation. Needs no more than torch, so that a wrong name is an error soon."""

import torch

from gar.errors import ConfigError


def choose_device(name: str | None) -> torch.device:
    """The device of that name (`--device`), else the accelerator, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    usable = [accelerator.type] if accelerator else []
    if name is None:
        return torch.device((*usable, "cpu")[0])
    if name.partition(":")[0] not in (*usable, "cpu"):
        raise ConfigError(
            f"--device: usable on this machine is {' or '.join((*usable, 'cpu'))}, got '{name}'.", code="device"
        )
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device: {error}", code="device") from error
