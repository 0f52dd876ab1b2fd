"""Problems, prompts, and the tasks that the package generates."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.data.arithmetic import SEPARATOR, load_arithmetic
    from gar.data.problems import load_problems, prompt_text
    from gar.rollouts.generate import check_prompts, context_length, encode_prompt, generate_responses
    from gar.settings import EMBEDDED_TASKS

__all__ = [
    "EMBEDDED_TASKS",
    "SEPARATOR",
    "check_prompts",
    "context_length",
    "encode_prompt",
    "generate_responses",
    "load_arithmetic",
    "load_problems",
    "prompt_text",
]
_MODULES = {
    "gar.data.arithmetic": "SEPARATOR load_arithmetic",
    "gar.data.problems": "load_problems prompt_text",
    "gar.rollouts.generate": "check_prompts context_length encode_prompt generate_responses",
    "gar.settings": "EMBEDDED_TASKS",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gar.data' has no attribute '{name}'")
