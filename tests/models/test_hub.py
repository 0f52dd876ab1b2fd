"""A model's name that leads nowhere is rejected at once, with the nearest that does."""

from pathlib import Path

import huggingface_hub
import pytest

from gar.errors import ModelError
from gar.models.hub import check_model_name


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and no answer kept."""
    check_model_name.cache_clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        check_model_name(name)
    return str(caught.value)


def test_check_model_name_accepts_models_on_this_machine(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").touch()
    check_model_name("embedded")
    check_model_name(str(tmp_path / "mine"))


def test_check_model_name_refuses_folders_and_files_without_a_model(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").touch()
    assert refusal(str(tmp_path / "run")).endswith(f"so it holds no model. Its model is in {tmp_path}/run/model.")
    (tmp_path / "a.bin").touch()
    assert "'a.bin' is a file, expected a folder" in refusal("a.bin")
    assert "there is no folder 'x/y/z', and this is not the form of a Hub id." in refusal("x/y/z")


def test_check_model_name_offline_names_the_nearest_in_the_cache(tmp_path):
    (tmp_path / "cache" / "models--Qwen--Qwen3-0.6B").mkdir(parents=True)
    assert refusal("Qwen/Qwen3-0.6BB").endswith("HF_HUB_OFFLINE is set. Did you mean 'Qwen/Qwen3-0.6B'?")
    assert refusal("embeded").endswith("Did you mean 'embedded'?")


def test_check_model_name_asks_the_hub_once_and_not_for_minutes(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    asked = []

    def answer(self, name, *, revision, timeout):
        asked.append((name, timeout))
        raise huggingface_hub.errors.OfflineModeIsEnabled("no route to host")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", answer)
    assert "no model 'a/b' on this machine, and the Hub gives none (no route to host)." in refusal("a/b")
    assert asked == [("a/b", 5.0)]
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *args, **kwargs: None)
    check_model_name("c/d")
