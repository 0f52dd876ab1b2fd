"""Hashes that identify a model and a tokenizer wherever they are stored."""

import hashlib
from typing import Any

import torch

from gar.records.files import canonical_hash

_VALUES_PER_TENSOR = 256
_CHUNK_BYTES = 2**25


def weights_hash(model: torch.nn.Module) -> str:
    """SHA-256 over names, shapes, types, about 256 values and a checksum of all values of every weight.

    Hashing all values of a large checkpoint would take minutes.
    """
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        values = tensor.detach().flatten()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {_checksum(values)}".encode())
        values = values[:: max(1, len(values) // _VALUES_PER_TENSOR)].cpu().contiguous()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _checksum(values: torch.Tensor) -> int:
    """Sum of `(2 i + 1)` times word i of 8 bytes, modulo 2^64: any change of one word shows, and any swap of two.

    Sums of integers, unlike those of floats, are the same in any order, and so on any device.
    """
    total = 0
    for first, part in enumerate(values.view(torch.uint8).split(_CHUNK_BYTES)):
        padded = part.new_zeros(-(-len(part) // 8) * 8)  # a copy, which begins at a whole word
        padded[: len(part)] = part
        words, start = padded.view(torch.int64), first * _CHUNK_BYTES // 8
        places = torch.arange(start, start + len(words), device=words.device)
        total += int((words * (2 * places + 1)).sum())
    return total % 2**64


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of the tokenizer's rules and its chat template."""
    rules = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    return canonical_hash([rules, tokenizer.chat_template])
