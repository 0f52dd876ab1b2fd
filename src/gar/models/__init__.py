"""Language models: load one, find its head and backbone, sample responses."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.models.adapters import is_adapted
    from gar.models.embedded import embedded_path, load_embedded, model_path
    from gar.models.families import ModelParts, evaluation_mode, find_parts
    from gar.models.generate import Sampling, check_prompts, generate_responses, own_generation
    from gar.models.load import load_policy, load_tokenizer, quiet_libraries
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ModelParts",
    "Sampling",
    "check_prompts",
    "embedded_path",
    "evaluation_mode",
    "find_parts",
    "generate_responses",
    "is_adapted",
    "load_embedded",
    "load_policy",
    "load_tokenizer",
    "model_path",
    "own_generation",
    "quiet_libraries",
]
