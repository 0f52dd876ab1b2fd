"""Hashes that identify a file, a model and a tokenizer wherever they are stored."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from gar.records.files import canonical_hash, io_error

_VALUES_PER_TENSOR = 256


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file.

    Raises:
        RecordError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise io_error(path, "read", error) from error


def weights_hash(model: torch.nn.Module) -> str:
    """SHA-256 over names, shapes, types and about 256 values of every weight: training changes nearly all of them.

    Hashing all values of a large checkpoint would take minutes.
    """
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        values = tensor.detach().flatten()
        values = values[:: max(1, len(values) // _VALUES_PER_TENSOR)].cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of the tokenizer's rules and its chat template."""
    rules = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    return canonical_hash([rules, tokenizer.chat_template])
