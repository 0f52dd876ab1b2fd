"""The model card of a run: where its model comes from, how it was trained, what was measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gar import __version__
from gar.analysis.summary import nothing_learned, summary_texts
from gar.config import RunConfig, dump_yaml
from gar.records import Run
from gar.records.dotted import leaves
from gar.settings import EMBEDDED_TASKS

CITATION = "@misc{gar2026, title = {GAR: Gradient-Aligned Reward}, eprint = {2609.03342}, archivePrefix = {arXiv}}"
_NOT_SHOWN = ("records.", "plugins", "preflight.", "watchdog.", "data.source", "model.path", "evaluate.sources")
"""Paths of this machine, and what changes no weight."""


def model_card(config: RunConfig, run: Run, summary: Mapping[str, Any]) -> str:
    """Markdown with the front matter of the Hub. Paths of this machine are left out."""
    rows = "\n".join(f"| {label} | {text} |" for label, text in summary_texts(summary).items())
    verdict = nothing_learned(run) or "One run: another seed may give other numbers."
    model, source = config.model.path, config.data.source
    # The front matter links to the Hub, so it names only what is there.
    front: dict[str, Any] = {"library_name": "transformers", "tags": ["gar", "trl", config.method]}
    if _is_hub_id(model):
        front["base_model"] = model
    if source not in EMBEDDED_TASKS and _is_hub_id(source):
        front["datasets"] = [source]
    # Only settings that make this model differ from one of another run.
    defaults = dict(leaves(RunConfig().model_dump(mode="json")))
    settings = "\n".join(
        f"{name}: {value}"
        for name, value in leaves(config.model_dump(mode="json"))
        if defaults.get(name) != value and not name.startswith(_NOT_SHOWN)
    )
    base, data = (Path(name).name if Path(name).exists() else name for name in (model, source))
    return f"""---
{dump_yaml(front)}---

# {Path(model).name} trained with {config.method}

Trained from `{base}` with the method `{config.method}` of [GAR](https://arxiv.org/abs/2609.03342) (gar {__version__})
on `{data}` for {summary["steps"]} steps.

| at the beginning → at the end | |
|---|---|
{rows}

{verdict}

Settings that differ from the defaults:

```yaml
{settings}
```

```bibtex
{CITATION}
```
"""


def _is_hub_id(name: str) -> bool:
    return name.count("/") == 1 and not Path(name).exists()
