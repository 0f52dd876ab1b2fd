"""The model of a command: its device, and hashes that identify model and tokenizer wherever they are stored."""

import hashlib
from typing import Any

import torch

from gar.errors import ConfigError
from gar.records.files import canonical_hash


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


def weights_hash(model: torch.nn.Module) -> str:
    """BLAKE2 over names, shapes, types and values of every weight: about a second per GB on one core."""
    digest = hashlib.blake2b(digest_size=32)
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of the tokenizer's rules and its chat template."""
    rules = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    return canonical_hash([rules, tokenizer.chat_template])
