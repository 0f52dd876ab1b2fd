"""A name without a model is rejected at once, with the nearest that has one."""

from pathlib import Path

import huggingface_hub
import pytest

from gar.errors import ModelError
from gar.models.hub import check_model_name
from tests.support.errors import raises


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache of the Hub, and no remembered answer."""
    check_model_name.cache_clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_check_model_name_rejects_what_holds_no_model_and_names_the_nearest(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "a.bin").touch()
    (tmp_path / "cache" / "models--Qwen--Qwen3-0.6B").mkdir(parents=True)
    check_model_name("embedded")
    check_model_name("run/model")
    for name, near in (
        ("run", "run/model"), ("a.bin", ""), ("x/y/z", ""), ("Qwen/Qwen3-0.6BB", "'Qwen/Qwen3-0.6B'"),
        ("embeded", "'embedded'"),
    ):  # fmt: skip
        with raises(ModelError, "no-model", near):
            check_model_name(name)


def test_check_model_name_asks_the_hub_once_and_not_for_minutes(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    asked = []

    def answer(self, name, *, revision, timeout):
        asked.append((name, timeout))
        raise huggingface_hub.errors.OfflineModeIsEnabled("no route to host")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", answer)
    with raises(ModelError, "no-model"):
        check_model_name("a/b")
    assert asked == [("a/b", 5.0)]
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *args, **kwargs: None)
    check_model_name("c/d")
