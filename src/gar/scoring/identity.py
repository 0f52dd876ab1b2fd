"""Hashes that identify a model and a tokenizer wherever they are stored."""

import hashlib
from typing import Any

import torch

from gar.records.files import canonical_hash


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
