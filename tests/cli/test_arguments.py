"""The command line in one style: words of switches, and commands without their arguments."""

import pytest
import tyro

from gar.cli.arguments import parse
from gar.cli.main import main
from gar.settings import Settings


class Options(Settings):
    name: str = ""
    overwrite: bool = False
    fast_start: bool = True


class Nested(Settings):
    options: Options = Options()
    name: str = ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--overwrite", "True"], {"overwrite": True}),
        (["--overwrite", "False"], {"overwrite": False}),
        (["--fast-start=False"], {"fast_start": False}),
        (["--fast_start", "False", "--overwrite=True"], {"fast_start": False, "overwrite": True}),
        (["--name", "True", "--overwrite"], {"name": "True", "overwrite": True}),
        (["--overwrite", "true", "--fast-start=false"], {"overwrite": True, "fast_start": False}),
    ],
)
def test_a_switch_also_takes_the_word_that_gar_train_takes(arguments, expected):
    assert parse(Options, arguments, prog="gar") == Options(**expected)


@pytest.mark.parametrize("flag", ["--options.fast-start", "--options.fast_start", "--fast-start"])
@pytest.mark.parametrize("config", [(), (tyro.conf.FlagConversionOff,)])
def test_a_flag_of_a_section_takes_its_value_in_lower_case_as_yaml_does(flag, config):
    read = parse(Nested, [flag, "false", "--name", "true"], prog="gar", config=config)
    assert read == Nested(options=Options(fast_start=False), name="true")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report"], "gar report: name a run folder, or a folder of them, for example runs/NAME."),
        (["report", "--serve"], "gar report: name a run folder, or a folder of them, for example runs/NAME."),
        (["data"], "gar data: expected one of check, prepare, slime, verl. gar data --help says more."),
        (["eval", "table"], "gar eval: name a folder that `gar eval score` has graded, for example evals/MODEL."),
    ],
)
def test_a_command_that_lacks_an_argument_ends_with_2(arguments, message, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == message + "\n"
