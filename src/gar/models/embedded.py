"""The embedded model: a tiny Qwen3, trained from scratch on the embedded task and shipped inside the package.

`python -m paper.tasks.make_model` makes the checkpoint. `paper/tasks/embedded.md` states how and what it can do.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gar.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


def embedded_path() -> Path:
    """The folder of the embedded checkpoint, for `from_pretrained` and for TRL.

    Raises:
        ModelError: The package was installed without its assets.
    """
    path = Path(str(resources.files("gar") / "assets" / "arithmetic-qwen3"))
    if not (path / "model.safetensors").is_file():
        raise ModelError(
            f"the embedded model is missing: no model.safetensors in {path}. "
            "Was the package built without its assets? Make it with python -m paper.tasks.make_model.",
            code="no-model",
        )
    return path


def load_embedded() -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """The embedded model (float32, evaluation mode, on the CPU) and its tokenizer, without a network.

    Raises:
        ModelError: The package was installed without its assets.
    """
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    path = embedded_path()
    model = Qwen3ForCausalLM.from_pretrained(path, local_files_only=True)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    return model.eval(), tokenizer


def model_path(name: str) -> str:
    """The argument for `from_pretrained`: the packaged folder for "embedded", a folder's absolute path, or a Hub id."""
    if name == "embedded":
        return str(embedded_path())
    # Adapters record the path of the folder that they are trained on.
    return str(Path(name).absolute()) if Path(name).is_dir() else name
