"""Plugins: read before the settings, in every process; one sentence for one that cannot be read."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gar import plugins
from gar.cli.main import main
from gar.config import config_type, make_config
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

register(Method(name="my-method", summary="a test's", shape=outcome_rewards, settings=Mine))
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that registers a method, forgotten afterwards."""
    path, before = tmp_path / "mine.py", set(sys.modules)
    path.write_text(PLUGIN)
    monkeypatch.setattr(plugins, "_loaded", set())
    yield str(path)
    METHODS.pop("my-method", None)
    REGISTERED.pop("my-method", None)
    for name in set(sys.modules) - before:
        if name.startswith("gar_plugin") or name == "mine":
            del sys.modules[name]


def test_a_plugin_brings_a_method_and_its_section(plugin: str):
    config = make_config({"plugins": [plugin], "method": "my-method", "my_method": {"factor": 3}})
    assert (config.method, config.my_method.factor) == ("my-method", 3.0)
    assert make_config(config.model_dump(mode="json")) == config
    with raises(ConfigError):
        make_config({"plugins": [plugin], "my_method": {"facto": 3}})


def test_a_module_in_the_current_folder_is_a_plugin(plugin: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(Path(plugin).parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert make_config({"plugins": ["mine"], "method": "my-method"}).plugins == ("mine",)


def test_a_plugin_of_an_installed_package_is_read(plugin: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(plugin).parent)
    monkeypatch.setattr(plugins, "_entry_points", lambda: (EntryPoint("mine", "mine", plugins.GROUP),))
    assert make_config({"method": "my-method"}).method == "my-method"


def test_the_command_line_knows_the_section_of_a_plugin(plugin: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["train", "--plugin", plugin, "--help-all"])
    assert "--my_method.factor" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["verl", "slime"])
def test_workers_of_other_engines_read_plugins(plugin: str, engine: str):
    values = {"method": "my-method", "plugins": [plugin], "my_method": {"factor": 3.0}}
    if engine == "verl":
        config = read_verl({"gar": values})
    else:
        config = read_slime(type("Args", (), {"gar": values, "custom_config_path": "gar.yaml"})())
    assert (config.method, config.my_method.factor) == ("my-method", 3.0)


def test_a_plugin_that_cannot_be_read_gets_one_sentence(plugin: str, capsys: pytest.CaptureFixture[str]):
    for text in ("import nowhere", "x = 1 /", "raise RuntimeError('broken')", PLUGIN.replace("my-method", "grpo")):
        Path(plugin).write_text(text)
        with raises(ConfigError) as caught:
            make_config({"plugins": [plugin]})
        assert str(caught.value).startswith(f"plugin {plugin}")
        assert "\n" not in str(caught.value)
    assert main(["train", "--plugin", "no.such.module"]) == 1
    assert "plugin no.such.module cannot be imported" in capsys.readouterr().err


def test_a_section_that_exists_is_not_taken_over(plugin: str):
    Path(plugin).write_text(PLUGIN.replace("my-method", "data"))
    try:
        with raises(ConfigError):
            make_config({"plugins": [plugin]})
    finally:
        METHODS.pop("data")
        REGISTERED.pop("data")


def test_help_of_the_command_line_imports_no_torch():
    code = "import sys, gar.cli.main as m; m.main(['train', '--help']); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_without_plugins_the_configuration_is_plain():
    assert not REGISTERED.keys() & {"my-method"}
    assert "my_method" not in config_type().model_fields
