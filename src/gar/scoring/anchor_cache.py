"""Anchor vectors under a frozen policy: computed once, cached in memory and on disk."""

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gar import __version__
from gar.errors import RecordError
from gar.models.sources import cache_folder
from gar.records.files import canonical_hash, write_atomic
from gar.settings import SignalSettings
from gar.spans import TokenSequence

_INDIFFERENT = {"max_batch_tokens", "memory_bytes", "policy", "span", "limit_tokens", "limit_from"}
"""Settings that change a vector only by rounding, or through its sequence's scored positions."""


def cache_name(policy: str, signal: SignalSettings) -> str:
    """Name of the cache for a policy, a signal and this version of gar.

    Args:
        policy: Identifies the policy, for example `weights_hash`.
        signal: The signal settings in force.
    """
    return canonical_hash([__version__, policy, signal.model_dump(mode="json", exclude=_INDIFFERENT)])


class AnchorCache:
    """Mean vectors of token sequences, a safetensors file each, in `$GAR_CACHE/anchors/NAME`.

    A file is named after its sequence (context, tokens, scored positions) and holds its vector's hash. A damaged
    or foreign file is named in a warning, recomputed and replaced.

    Args:
        name: From `cache_name`.
        width: Dimension of a vector.
        folder: Folder in place of the user's cache.
    """

    def __init__(self, name: str, width: int, *, folder: Path | None = None):
        self.folder = (folder or cache_folder() / "anchors") / name
        self._name = name
        self._width = width
        self._vectors: dict[str, Tensor] = {}
        self._can_write = True

    def read(self, sequences: Sequence[TokenSequence]) -> list[Tensor | None]:
        """The vector of each sequence, float32 [hidden] on the CPU; None where it must be computed."""
        return [self._read(self._key(sequence)) for sequence in sequences]

    def add(self, sequences: Sequence[TokenSequence], vectors: Tensor) -> None:
        """Cache vectors, [sequences, hidden]. If writing fails, a warning says so, and later vectors stay in memory."""
        for sequence, vector in zip(sequences, vectors.detach().float().cpu(), strict=True):
            key, vector = self._key(sequence), vector.clone()
            self._vectors[key] = vector
            if not self._can_write or not bool(vector.isfinite().all()):
                continue
            try:
                write_atomic(self._path(key), save({"vector": vector}, {"key": key, "sha256": _hash(vector)}))
            except RecordError as error:
                if not self._path(key).exists():  # another process has just written it
                    self._can_write = False
                    warnings.warn(f"Anchor vectors are not kept on disk: {error}", stacklevel=2)

    def _read(self, key: str) -> Tensor | None:
        if key not in self._vectors and self._path(key).is_file():
            try:
                self._vectors[key] = self._load(key)
            except (SafetensorError, OSError, ValueError) as error:
                warnings.warn(
                    f"{self._path(key)}: not the vector of this anchor ({error}). It is recomputed.", stacklevel=2
                )
        return self._vectors.get(key)

    def _load(self, key: str) -> Tensor:
        with safe_open(self._path(key), framework="pt") as file:
            metadata = file.metadata() or {}
            if list(file.keys()) != ["vector"] or metadata.get("key") != key:
                raise ValueError("it belongs to another anchor")
            vector = file.get_tensor("vector")
        if vector.shape != (self._width,) or vector.dtype != torch.float32 or metadata.get("sha256") != _hash(vector):
            raise ValueError("its content is damaged")
        return vector

    def _key(self, sequence: TokenSequence) -> str:
        return canonical_hash([self._name, list(sequence.context_ids), list(sequence.ids), list(sequence.positions)])

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"


def _hash(vector: Tensor) -> str:
    return hashlib.sha256(vector.contiguous().numpy().tobytes()).hexdigest()
