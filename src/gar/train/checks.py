"""Checks of a run before anything is loaded. This module imports neither torch nor transformers nor TRL."""

from collections.abc import Callable, Iterator
from importlib import resources
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import get_args

from gar.config import RunConfig
from gar.data.problems import iter_problems, no_expert_solutions
from gar.data.rows import FILE_SUFFIXES, check_hub, check_source
from gar.data.run_problems import GENERATED, evaluation_data, load_run_problems
from gar.errors import ConfigError, DataError, GarError, ModelError, did_you_mean, install_command
from gar.integrations.trl.fields import batch_of, check_fields, check_num_problems, missing_packages
from gar.models.hub import check_model_name, context_before_loading
from gar.settings import REGISTERED, DataSettings, MethodName
from gar.types import Problem


def check_before_loading(config: RunConfig) -> None:
    """Make every check in `_CHECKS`.

    Raises:
        GarError: Lists every mistake, one per line.
    """
    errors: list[GarError] = []
    for check in _CHECKS:
        try:
            check(config)
        except GarError as error:
            errors.append(error)
    texts = [text for error in errors for text in str(error).removeprefix("\n- ").split("\n- ")]
    if errors:
        text = texts[0] if len(texts) == 1 else "\n- ".join(["", *texts])
        raise type(errors[0])(text, code=errors[0].code)


def _check_rules(config: RunConfig) -> None:
    """The rules of `gar train`."""
    size, group = batch_of(config.trl)
    evaluate = config.evaluate
    facts = {
        "adapter.rank": config.adapter.rank,
        "evaluates": bool(evaluate.sources),
        "evaluate.pass_at_k": evaluate.pass_at_k,
        "evaluate.num_samples": evaluate.num_samples,
        "method.samples_groups": config.method in _GROUPED,
        "responses_per_batch": size,
        "trl.num_generations": group,
    }
    check_fields(config.trl, facts | missing_packages())


def _check_training_data(config: RunConfig) -> None:
    """Read as many problems as a batch needs, and on to the first expert solution if the method needs one."""
    size, group = batch_of(config.trl) if config.method in _GROUPED else (1, 1)
    found, complete = 0, not _needs_experts(config.method)
    for problem in _problems(config.data):
        found += 1
        complete = complete or bool(problem.anchors)
        if complete and found >= size // group:
            return
    if found:  # a source that was read to its end
        check_num_problems(size, group, found)
        raise no_expert_solutions(config.method, found)


def _needs_experts(name: str) -> bool:
    method = REGISTERED.get(name)
    return name in EXPERT_METHODS if method is None else method.needs_alignment or method.trains_on_experts


def _problems(settings: DataSettings) -> Iterator[Problem]:
    """The problems of a generated task or a file. None for another source, which takes `datasets` to read."""
    if settings.source in GENERATED:
        yield from load_run_problems(settings).problems
        return
    _check_exists(settings)
    if settings.source.endswith(FILE_SUFFIXES):
        items = (item for _, item in iter_problems(settings.source, settings) if isinstance(item, Problem))
        yield from islice(items, settings.max_problems)


def _check_evaluation_data(config: RunConfig) -> None:
    for source in config.evaluate.sources:
        data = evaluation_data(config.data, source)
        for _ in islice(_problems(data.model_copy(update={"max_problems": 1})), 1):
            pass


def _check_exists(settings: DataSettings) -> None:
    source = settings.source
    try:
        check_source(source)
        if not Path(source).exists():
            check_hub(source, settings.revision)
    except DataError as error:
        raise DataError(_with_hint(error, source)) from None


def _check_name(config: RunConfig) -> None:
    if config.records.name is not None:
        from gar.records.run_folder import check_name  # with pyarrow

        check_name(config.records.output_dir, config.records.name)


def _check_model(config: RunConfig) -> None:
    model, length = config.model, config.trl.get("max_completion_length")
    try:
        check_model_name(model.path, model.revision)
    except ModelError as error:
        raise ModelError(_with_hint(error, model.path)) from None
    context = context_before_loading(model.path, model.revision)
    if context is not None and isinstance(length, int) and length >= context:
        raise ConfigError(
            f"trl.max_completion_length is {length}, but the context of {model.path} is {context} tokens, prompt "
            "included. Lower it."
        )


def _check_reporters(config: RunConfig) -> None:
    """Check the trackers now. transformers checks them when the trainer is made, minutes later."""
    chosen = config.trl.get("report_to")
    for name in chosen if isinstance(chosen, list) else [chosen]:
        if name in (None, "none", "all"):
            continue
        if name not in REPORTERS:
            hint = did_you_mean(str(name), REPORTERS)
            raise ConfigError(f"trl.report_to is {name}, expected none or some of {', '.join(REPORTERS)}.{hint}")
        packages = REPORTERS[name].split()
        if packages and not any(map(find_spec, packages)):
            raise ConfigError(f"trl.report_to is {name}, which is not installed: {install_command(packages[0])}.")


REPORTERS = {
    "azure_ml": "azureml", "clearml": "clearml", "codecarbon": "codecarbon", "comet_ml": "comet_ml",
    "dagshub": "dagshub", "dvclive": "dvclive", "flyte": "flytekit", "kubeflow": "", "mlflow": "mlflow",
    "neptune": "neptune", "swanlab": "swanlab", "tensorboard": "tensorboard tensorboardX", "trackio": "trackio",
    "wandb": "wandb",
}  # fmt: skip  # a table
"""Values of `trl.report_to`, each with the packages of which it needs one."""

EXPERT_METHODS = frozenset({
    "gar-grpo", "gar-reinforce-plus-plus",
    "anchor-shuffled", "anchor-random", "hidden-cosine", "text-similarity", "length", "alignment-only",
})  # fmt: skip  # methods, then controls
"""Methods that can do nothing without expert solutions, known before torch is imported."""

_GROUPED = frozenset(get_args(MethodName))
"""Methods of this package that sample groups of responses."""

_CHECKS: tuple[Callable[[RunConfig], None], ...] = (
    _check_rules,
    _check_training_data,
    _check_evaluation_data,
    _check_name,
    _check_reporters,
    _check_model,
)


def _with_hint(error: GarError, name: str) -> str:
    """Add to an error of packaged settings the command that makes the missing file or model."""
    folder = resources.files("gar") / "configs"
    files = [file for part in (folder, folder / "compare") for file in part.iterdir() if file.name.endswith(".yaml")]
    for line in chain.from_iterable(file.read_text(encoding="utf-8").splitlines() for file in files):
        command = line.lstrip("# ")
        written = next((known for known in (name, Path(name).name) if known in command.split()), None)
        if written and not Path(name).exists() and command.startswith(("gar data prepare ", "python examples/")):
            return f"{error} Make it with: {f'{command} '.replace(f' {written} ', f' {name} ').rstrip()}"
    return str(error)
