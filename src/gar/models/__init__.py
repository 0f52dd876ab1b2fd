"""Language models: load one, find its head and backbone."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.models.families import ModelParts, evaluation_mode, find_parts
    from gar.models.load import load_policy, load_tokenizer
    from gar.models.sources import model_path

__all__ = [
    "ModelParts",
    "evaluation_mode",
    "find_parts",
    "load_policy",
    "load_tokenizer",
    "model_path",
]


def __getattr__(name: str) -> Any:
    """Import a name's module on first access: the command line reads `sources` without torch."""
    if name in __all__:
        from gar.models import families, load, sources

        return next(getattr(module, name) for module in (families, load, sources) if hasattr(module, name))
    raise AttributeError(f"module 'gar.models' has no attribute '{name}'")
