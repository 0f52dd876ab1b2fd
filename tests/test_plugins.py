"""Plugins: read before the settings, in every process; one sentence for one that cannot be read."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gar import plugins
from gar.cli.main import main
from gar.config import make_config
from gar.errors import ConfigError
from gar.integrations.slime.settings import read_settings as read_slime
from gar.integrations.verl.settings import read_settings as read_verl
from gar.methods import METHODS
from gar.settings import REGISTERED
from tests.support.errors import raises

PLUGIN = """
from gar import Settings
from gar.methods import Method, outcome_rewards, register

class Mine(Settings):
    '''My section.'''
    factor: float = 2.0

register(Method(name="my-method", summary="a test's", shape=outcome_rewards, settings=Mine, trainer=print))
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that registers a method, forgotten afterwards."""
    path, before = tmp_path / "mine.py", set(sys.modules)
    path.write_text(PLUGIN)
    monkeypatch.setattr(plugins, "_loaded", set())
    yield str(path)
    for name in ("my-method", "data"):
        METHODS.pop(name, None)
        REGISTERED.pop(name, None)
    for name in set(sys.modules) - before:
        if name.startswith("gar_plugin") or name == "mine":
            del sys.modules[name]


def test_a_plugin_brings_a_method_and_its_section_to_every_driver(plugin: str, capsys: pytest.CaptureFixture[str]):
    values = {"plugins": [plugin], "method": "my-method", "my_method": {"factor": 3}}
    config = make_config(values)
    slime = read_slime(type("Args", (), {"gar": values, "custom_config_path": "gar.yaml"})())
    for read in (config, make_config(config.model_dump(mode="json")), read_verl({"gar": values}), slime):
        assert (read.method, read.my_method.factor) == ("my-method", 3.0)
    with raises(ConfigError):
        make_config({"plugins": [plugin], "my_method": {"facto": 3}})
    with pytest.raises(SystemExit):
        main(["train", "--plugin", plugin, "--help-all"])
    assert "--my_method.factor" in capsys.readouterr().out


@pytest.mark.parametrize("way", ["current folder", "installed package"])
def test_a_module_may_be_a_plugin(plugin: str, monkeypatch: pytest.MonkeyPatch, way: str):
    monkeypatch.setattr(sys, "path", [*sys.path])
    if way == "current folder":
        monkeypatch.chdir(Path(plugin).parent)
    else:
        monkeypatch.syspath_prepend(Path(plugin).parent)
        monkeypatch.setattr(plugins, "_entry_points", lambda: (EntryPoint("mine", "mine", plugins.GROUP),))
    named = {"plugins": ["mine"]} if way == "current folder" else {}
    assert make_config({"method": "my-method", **named}).method == "my-method"


def test_a_plugin_that_cannot_be_read_gets_one_sentence(plugin: str):
    for text in ("import nowhere", "x = 1 /", "raise RuntimeError('broken')", PLUGIN.replace("my-method", "grpo")):
        Path(plugin).write_text(text)
        with raises(ConfigError) as caught:
            make_config({"plugins": [plugin]})
        assert str(caught.value).startswith(f"plugin {plugin}")
        assert "\n" not in str(caught.value)
    Path(plugin).write_text(PLUGIN.replace("my-method", "data"))
    with raises(ConfigError):  # the section is taken
        make_config({"plugins": [plugin]})
