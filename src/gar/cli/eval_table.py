"""`gar eval table`: every benchmark and model in one table."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from gar.cli.arguments import parse
from gar.errors import UsageError
from gar.settings import Settings

_DESCRIPTION = """Benchmarks and models in one table, with intervals and paired tests:
  gar eval table A [B ...] [--format markdown] [--out FILE]

  A                  [LABEL=]FOLDER, as `gar eval generate` writes it; the first
                     is what the others are tested against
  A of several seeds FOLDER,FOLDER,... paired in their order
"""


class _Arguments(Settings):
    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="A [B ...]")]
    """The reference first. A benchmark that a model lacks is a dash."""
    format: Annotated[Literal["text", "markdown"], tyro.conf.arg(metavar="FMT")] = "text"
    """text, for a terminal, or markdown."""
    pass_at_k: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K")] = ()
    """pass@k and maj@k for these k. By default pass@1, pass@n/2 and maj@n."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the table to this file instead."""


def main(arguments: list[str]) -> int:
    """Run `gar eval table`."""
    settings = parse(_Arguments, arguments, prog="gar eval table", description=_DESCRIPTION)
    if not settings.models:
        raise UsageError("name a folder that `gar eval score` has graded, for example evals/MODEL.")
    from gar.evaluation import benchmark_table as tables
    from gar.records.files import write_atomic

    table = tables.benchmark_table([tables.load_model(model) for model in settings.models], ks=settings.pass_at_k)
    content = tables.text(table) if settings.format == "text" else tables.markdown(table)
    if settings.out is None:
        print(content, end="")
    else:
        write_atomic(settings.out, content)
        print(f"Table    {settings.out}")
    return 0
