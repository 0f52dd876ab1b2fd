"""The command line in one style: words of switches, aliases, and what a wrong command line prints."""

import pytest
import tyro

from gar.cli.arguments import ALIASES, parse
from gar.cli.main import main
from gar.config import RunConfig
from gar.integrations.trl.fields import field_types
from gar.records.dotted import leaves
from gar.settings import Settings


class Options(Settings):
    fast_start: bool = True


class Nested(Settings):
    options: Options = Options()
    name: str = ""


def test_a_truth_value_is_a_word_of_yaml_or_of_python():
    for flag in ("--options.fast-start", "--options.fast_start"):
        for word in ("false", "False"):
            read = parse(Nested, [flag, word, "--name", "true"], prog="gar", config=(tyro.conf.FlagConversionOff,))
            assert read == Nested(options=Options(fast_start=False), name="true")


def test_aliases_stand_for_settings_and_are_at_most_twenty():
    settings = {name for name, _ in leaves(RunConfig().model_dump())} | {f"trl.{name}" for name in field_types()}
    assert {setting.removeprefix("--").partition("=")[0] for setting in ALIASES.values()} <= settings
    assert len(ALIASES) <= 20


def test_a_command_that_lacks_an_argument_ends_with_2(capsys):
    assert main(["report"]) == 2
    assert capsys.readouterr().err == "gar report: name a run folder, or a folder of them, for example runs/NAME.\n"
    for arguments, missing in ((["data", "check"], "SOURCE"), (["score", "embedded"], "FILE")):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert missing in capsys.readouterr().err
