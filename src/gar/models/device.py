"""The device of an evaluation."""

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
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device: {error}", code="device") from error
    count = torch.accelerator.device_count() if device.type != "cpu" else 1
    if (device.index or 0) >= count:
        raise ConfigError(
            f"--device: this machine has {count} of {device.type}, counted from 0, got '{name}'.", code="device"
        )
    return device
