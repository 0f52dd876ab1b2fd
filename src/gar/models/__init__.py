"""Language models: load one, find its head and backbone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.models.adapters import is_adapted
    from gar.models.embedded import load_embedded
    from gar.models.families import ModelParts, evaluation_mode, find_parts, frozen_copy
    from gar.models.load import load_policy, load_tokenizer
    from gar.models.sources import model_path

__all__ = [
    "ModelParts",
    "evaluation_mode",
    "find_parts",
    "frozen_copy",
    "is_adapted",
    "load_embedded",
    "load_policy",
    "load_tokenizer",
    "model_path",
]
_MODULES = {
    "gar.models.adapters": "is_adapted",
    "gar.models.embedded": "load_embedded",
    "gar.models.families": "ModelParts evaluation_mode find_parts frozen_copy",
    "gar.models.load": "load_policy load_tokenizer",
    "gar.models.sources": "model_path",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gar.models' has no attribute '{name}'")
