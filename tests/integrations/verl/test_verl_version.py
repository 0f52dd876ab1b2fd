"""What happens where verl is missing or another version: a sentence, not an ImportError from its depths."""

import subprocess
import sys
from importlib import metadata

import pytest

from gar.errors import ConfigError
from gar.integrations.verl import version


def found(monkeypatch: pytest.MonkeyPatch, installed: str | None) -> None:
    def look_up(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(version, "version", look_up)


def test_check_version_takes_the_one_it_is_written_for(monkeypatch):
    found(monkeypatch, "0.9.1")
    version.check_version()


@pytest.mark.parametrize("installed", ["0.9.0", "0.9.2", "0.10.0", "0.9.1.dev0"])
def test_check_version_refuses_others(monkeypatch, installed):
    found(monkeypatch, installed)
    with pytest.raises(ConfigError, match=rf"is written for verl==0\.9\.1 and found {installed}: it overrides methods"):
        version.check_version()


def test_check_version_says_what_to_install(monkeypatch):
    found(monkeypatch, None)
    with pytest.raises(ConfigError, match=r"needs verl==0\.9\.1, which is not installed: pip install verl==0\.9\.1"):
        version.check_version()


def test_importing_the_package_needs_no_verl_and_registers_nothing():
    """In a process of its own, where verl cannot be imported whether or not it is installed."""
    code = (
        "import sys; sys.modules['verl'] = None\n"
        "import gar.integrations.verl, gar.integrations.verl.data, gar.integrations.verl.settings, "
        "gar.integrations.verl.rows, gar.integrations.verl.exchange\n"
        "assert not [name for name in sys.modules if name.startswith(('ray', 'tensordict', 'transfer_queue'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
