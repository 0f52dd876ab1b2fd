"""The embedded model: a tiny Qwen3, trained from scratch on the embedded task and shipped inside the package.

`python -m paper.tasks.make_model` makes the checkpoint; `paper/tasks/embedded.md` states how and what they can do.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gar.errors import ModelError
from gar.settings import EMBEDDED_TASKS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


def embedded_task(name: str) -> str | None:
    """The task whose model `name` is: "embedded" or "embedded:TASK". None for a name of another kind.

    Raises:
        ModelError: There is no model for that task.
    """
    kind, colon, task = name.partition(":")
    if kind != "embedded":
        return None
    task = task if colon else EMBEDDED_TASKS[0]
    if task not in EMBEDDED_TASKS:
        known = ", ".join(f"embedded:{task}" for task in EMBEDDED_TASKS)
        raise ModelError(f"there is no embedded model '{name}', expected embedded or one of {known}")
    return task


def embedded_path(task: str = EMBEDDED_TASKS[0]) -> Path:
    """The folder of the embedded checkpoint for a task, for `from_pretrained` and for TRL.

    Raises:
        ModelError: The package was installed without its assets.
    """
    path = Path(str(resources.files("gar") / "assets" / f"{task}-qwen3"))
    if not (path / "model.safetensors").is_file():
        raise ModelError(
            f"the embedded model is missing: no model.safetensors in {path}. "
            "Was the package built without its assets? Make it with python -m paper.tasks.make_model."
        )
    return path


def load_embedded(task: str = EMBEDDED_TASKS[0]) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """The embedded model for a task (float32, evaluation mode, on the CPU) and its tokenizer, without a network.

    Raises:
        ModelError: The package was installed without its assets.
    """
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    path = embedded_path(task)
    model = Qwen3ForCausalLM.from_pretrained(path, local_files_only=True)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    return model.eval(), tokenizer
