"""Checks of a run before anything is loaded. This module imports neither torch nor transformers nor TRL."""

import importlib.util
from collections.abc import Callable
from importlib import resources
from itertools import chain, islice
from pathlib import Path

from gar.config import RunConfig
from gar.data.problems import ProblemReader
from gar.data.rows import FILE_SUFFIXES, check_source
from gar.data.run_problems import GENERATED, evaluation_data, load_run_problems
from gar.errors import ConfigError, DataError, GarError, ModelError, install_command
from gar.integrations.trl.fields import check_fields, check_packages
from gar.models.hub import check_model_name
from gar.settings import DataSettings, ModelSettings, RecordSettings


def check_before_loading(config: RunConfig) -> None:
    """Check TRL's fields, numbers, names, packages, data files and the model's name.

    Raises:
        GarError: Lists every mistake, one per line.
    """
    check_fields(config.trl, config.method)
    if config.evaluate.sources:
        config.evaluate.check_ks()
    checks: list[Callable[[], None]] = [lambda: check_packages(config.trl), lambda: _check_adapter(config)]
    checks += [lambda source=source: check_problems_source(source) for source in _sources(config)]
    checks += [lambda: _check_name(config.records)]
    checks += [lambda: _check_model(config.model)]
    errors: list[GarError] = []
    for check in checks:
        try:
            check()
        except GarError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])("\n- ".join(["", *map(str, errors)]) if len(errors) > 1 else str(errors[0]))


def _check_adapter(config: RunConfig) -> None:
    if config.adapter.rank is not None and importlib.util.find_spec("peft") is None:
        raise ConfigError(f"adapter.rank needs the package peft, which is not installed: {install_command('peft')}")


def _check_name(records: RecordSettings) -> None:
    if records.name is not None:
        from gar.records.folders import check_name  # with pyarrow

        check_name(records.folder, records.name)


def _check_model(model: ModelSettings) -> None:
    try:
        check_model_name(model.path, model.revision)
    except ModelError as error:
        raise ModelError(_with_hint(error, model.path)) from None


def _sources(config: RunConfig) -> list[DataSettings]:
    """The data settings of training and of every evaluation set."""
    return [config.data, *(evaluation_data(config.data, source) for source in config.evaluate.sources)]


def check_problems_source(settings: DataSettings) -> None:
    """Check that a source exists and that the first row of a file gives a problem.

    Raises:
        DataError: The check fails. For a file that a preset uses, the text has the command that makes it.
    """
    source = settings.source
    if source in GENERATED:
        load_run_problems(settings.model_copy(update={"max_problems": 1}))
        return
    try:
        check_source(source)
    except DataError as error:
        raise DataError(_with_hint(error, source)) from None
    if source.endswith(FILE_SUFFIXES):
        for _ in islice(ProblemReader(source, settings), 1):
            pass


def _with_hint(error: GarError, name: str) -> str:
    """The error's text, and the command that makes the missing file or model where packaged settings name one."""
    folder = resources.files("gar") / "configs"
    files = [file for part in (folder, folder / "compare") for file in part.iterdir() if file.name.endswith(".yaml")]
    for line in chain.from_iterable(file.read_text(encoding="utf-8").splitlines() for file in files):
        command = line.lstrip("# ")
        written = next((known for known in (name, Path(name).name) if known in command.split()), None)
        if written and not Path(name).exists() and command.startswith(("gar data prepare ", "python examples/")):
            return f"{error} Make it with: {f'{command} '.replace(f' {written} ', f' {name} ').rstrip()}"
    return str(error)
