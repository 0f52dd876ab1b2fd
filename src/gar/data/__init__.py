"""Problems, prompts, and the generated task `arithmetic`."""

from typing import TYPE_CHECKING

from gar.data import arithmetic
from gar.data.arithmetic import load_arithmetic
from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.data.prepare import write_problems
    from gar.data.problem_set import load_problems
    from gar.data.problems import prompt_text
    from gar.data.prompts import render_problems
    from gar.data.rows import iter_rows
    from gar.reader import encode_prompt
    from gar.settings import EMBEDDED_TASKS
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "EMBEDDED_TASKS",
    "arithmetic",
    "encode_prompt",
    "iter_rows",
    "load_arithmetic",
    "load_problems",
    "prompt_text",
    "render_problems",
    "write_problems",
]
