"""TRL's table of `log_completions`, with control characters shown: a terminal would obey them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trl.trainer.utils import print_prompt_completions_sample

from gar.errors import printable


@contextmanager
def completions_printed(trainer: Any, logs: Mapping[str, float]) -> Iterator[None]:
    """Print the table after the block, in which TRL would. TRL would also repeat it when training has ended."""
    most, trainer.num_completions_to_print = trainer.num_completions_to_print, 0
    try:
        yield
    finally:
        trainer.num_completions_to_print = most
    noted, shows = trainer._logs, trainer.log_completions and trainer.accelerator.is_main_process
    if shows and noted["prompt"] and "train_runtime" not in logs:
        print_prompt_completions_sample(
            _printable(noted["prompt"]),
            _printable(noted["completion"]),
            noted["rewards"],
            noted["advantages"],
            trainer.state.global_step,
            most,
            extra={name: _printable(values) for name, values in noted["extra"].items()},
        )


def _printable(value: Any) -> Any:
    """Texts, also within messages and lists of them."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {name: _printable(each) for name, each in value.items()}
    return value if isinstance(value, (int, float, type(None))) else [_printable(each) for each in value]
