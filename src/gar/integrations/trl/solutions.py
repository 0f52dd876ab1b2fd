"""Grade the first expert solutions of a training: a gold answer that its own solution misses does not fit."""

import warnings
from collections.abc import Mapping

from accelerate import PartialState

from gar.reader import judge
from gar.response import Response
from gar.types import Problem, ResponseVerifier, Verdict

_ENOUGH = 8


class SolutionCheck:
    """Grades solutions of a training's first groups, and warns once if most do not pass.

    Args:
        verifier: The training's. Without one, or with a required format, nothing is graded.
    """

    def __init__(self, verifier: ResponseVerifier | None):
        self._verifier = verifier
        self._graded: dict[int, tuple[Problem, Verdict]] = {}

    def look(self, problems: Mapping[int, Problem]) -> None:
        """Grade the solutions of groups, by the number of their problem, until there are enough."""
        if self._verifier is None or self._verifier.format != "none" or len(self._graded) >= _ENOUGH:
            return
        new = {i: each for i, each in problems.items() if each.anchors and i not in self._graded}
        solutions = [Response(text=problem.anchors[0].text) for problem in new.values()]
        for (i, problem), judged in zip(new.items(), judge(self._verifier, solutions, [*new.values()]), strict=True):
            self._graded[i] = problem, judged.verdict
        failed = [(problem, verdict) for problem, verdict in self._graded.values() if not verdict.verified]
        few = len(self._graded) < _ENOUGH or 2 * len(failed) <= len(self._graded)
        if few or not PartialState().is_main_process:
            return
        problem, verdict = failed[0]
        warnings.warn(
            f"{len(failed)} of the first {len(self._graded)} expert solutions do not pass for their gold answers. "
            f"For example problem {problem.id!r}: gold {problem.answer!r}, the solution's answer {verdict.answer!r} is "
            f"{verdict.status}. Is answer_field the right column? `gar data check FILE` lists all.",
            stacklevel=2,
        )
