"""Check whether a response is right and well formatted. Importing this imports neither torch nor SymPy."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.verify.answers import grade_answer, grade_without_parser
    from gar.verify.boxes import last_boxed
    from gar.verify.formats import ParsedResponse, ResponseFormat, parse_response
    from gar.verify.free import answer_line
    from gar.verify.grades import Graded
    from gar.verify.verifier import Verifier
    from gar.verify.workers import WorkerError
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Graded",
    "ParsedResponse",
    "ResponseFormat",
    "Verifier",
    "WorkerError",
    "answer_line",
    "grade_answer",
    "grade_without_parser",
    "last_boxed",
    "parse_response",
]
