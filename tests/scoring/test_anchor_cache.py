"""Vectors of anchors on disk: read back to the last bit, by name, and never a damaged or a foreign one."""

import warnings
from pathlib import Path

import pytest
import torch

from gar.scoring.anchor_cache import AnchorCache, cache_name
from gar.settings import SignalSettings
from gar.spans import TokenSequence

ONE = TokenSequence(context_ids=[1, 2], ids=[3, 4], positions=[0, 1])
TWO = TokenSequence(context_ids=[1, 2], ids=[3, 4], positions=[1])
VECTORS = torch.tensor([[0.1, -2.0, 3e-7], [1.0, 0.0, -0.0]])


def make(folder: Path, name: str = "policy", width: int = 3) -> AnchorCache:
    return AnchorCache(name, width, folder=folder)


@pytest.fixture
def filled(tmp_path: Path) -> AnchorCache:
    cache = make(tmp_path)
    cache.add([ONE, TWO], VECTORS)
    return cache


def is_vector(found, expected) -> bool:
    return found is not None and torch.equal(found, expected)


def test_vectors_are_read_back_by_another_process(filled, tmp_path):
    for cache in (filled, make(tmp_path)):
        found = cache.read([TWO, ONE])
        assert is_vector(found[0], VECTORS[1])
        assert is_vector(found[1], VECTORS[0])
    assert make(tmp_path, "other").read([ONE]) == [None]
    assert make(tmp_path).read([TokenSequence(context_ids=[1], ids=[3, 4], positions=[0, 1])]) == [None]
    assert len(list(filled.folder.iterdir())) == 2  # no partial file is left


def test_damaged_and_foreign_files_are_named_and_computed_again(filled, tmp_path):
    first, second = sorted(filled.folder.iterdir())
    whole = first.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])  # one bit of a number
    for content in (b"", whole[:40], flipped, second.read_bytes(), b"\xff" * 99):
        first.write_bytes(content)
        cache = make(tmp_path)
        with pytest.warns(UserWarning, match=f"{first.name}: not the vector of this anchor .*It is recomputed"):
            found = cache.read([ONE, TWO])
        assert sum(vector is None for vector in found) == 1
        missing = [sequence for sequence, vector in zip((ONE, TWO), found, strict=True) if vector is None]
        cache.add(missing, VECTORS[[[ONE, TWO].index(missing[0])]])
        assert all(vector is not None for vector in make(tmp_path).read([ONE, TWO]))
    with pytest.warns(UserWarning, match="its content is damaged"):
        assert make(tmp_path, width=4).read([ONE]) == [None]


def test_a_disk_that_refuses_is_named_once_and_memory_has_to_do(tmp_path):
    (tmp_path / "policy").write_text("a file in the place of the folder")
    cache = make(tmp_path)
    with pytest.warns(UserWarning, match="Anchor vectors are not kept on disk: ") as caught:
        cache.add([ONE, TWO], VECTORS)
    assert len(caught) == 1
    assert is_vector(cache.read([TWO])[0], VECTORS[1])


def test_a_vector_that_is_not_finite_stays_in_memory(tmp_path):
    cache = make(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.add([ONE], torch.tensor([[1.0, torch.nan, 0.0]]))
    assert not cache.folder.exists()


def test_the_name_tells_policies_signals_and_versions_apart(monkeypatch):
    name = cache_name("a", SignalSettings())
    with monkeypatch.context() as patched:
        patched.setattr("gar.scoring.anchor_cache.__version__", "9.9.9")
        assert cache_name("a", SignalSettings()) != name
    assert cache_name("b", SignalSettings()) != name
    for change in ({"kind": "gradient"}, {"temperature": 2.0}, {"anchor_keep_fraction": 0.7}, {"precision": "storage"}):
        assert cache_name("a", SignalSettings.model_validate(change)) != name
    for change in ({"max_batch_tokens": 7}, {"memory_bytes": 2**20}, {"limit_tokens": 5}):  # spans are in positions
        assert cache_name("a", SignalSettings.model_validate(change)) == name
