"""Choose the device of a command."""

import torch

from gar.errors import ConfigError


def choose_device(name: str | None, *, needs_float64: bool = False) -> torch.device:
    """The device of that name (`--device`), else the accelerator, else the CPU. Apple's devices have no float64."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    usable = [accelerator.type] if accelerator and not (needs_float64 and accelerator.type == "mps") else []
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
