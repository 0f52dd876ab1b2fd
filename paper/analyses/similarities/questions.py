"""The questions to a similarity: which of two pairs of response and anchor is more alike?"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gar import Problem, Prompt
from gar.data import arithmetic
from paper.analyses.similarities.flaws import chain_flaws, text_flaws
from paper.analyses.similarities.solutions import LabeledSolution
from paper.tasks.chains import parse_solution, task_of, write_solution

QUESTIONS = {
    "equal-wording": "same method in other words, or another method in these other words",
    "over-wording": "same method in other words, or another method in the anchor's words",
    "own": "the anchor of the same problem, or of another problem",
    "sound": "a sound solution, or the same one with a planted flaw",
    "sampled": "of the policy's own right answers, a sound or an unsound one",
    "natural": "a right solution, or another writer's wrong one",
}
"""The one that should rank first is named first."""

_MOST_RESPONSES = 2
"""Right responses, and wrong ones, that are used of each problem."""

NEAREST = "nearest in length"
"""Kind of the triples of `own` with an other anchor chosen by length. They count under equal lengths alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Triple:
    """Two pairs of response and anchor, as indices of solutions: either the response or the anchor is the same.

    Attributes:
        question: One of `QUESTIONS`.
        kind: The other method, the flaw, or where the other anchor comes from.
        problem_id: The problem, over which intervals are resampled.
        better: Response and anchor that should be more alike.
        worse: The other pair.
    """

    question: str
    kind: str
    problem_id: str
    better: tuple[int, int]
    worse: tuple[int, int]


@dataclass(kw_only=True, slots=True)
class Questions:
    """Solutions, each once, and triples of them."""

    solutions: list[LabeledSolution] = field(default_factory=list)
    triples: list[Triple] = field(default_factory=list)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def index_of(self, solution: LabeledSolution) -> int:
        """The solution's index. A new solution is added."""
        key = (solution.problem_id, solution.text)
        if key not in self._known:
            self._known[key] = len(self.solutions)
            self.solutions.append(solution)
        return self._known[key]

    def ask_response(
        self, question: str, kind: str, anchor: LabeledSolution, better: LabeledSolution, worse: LabeledSolution
    ) -> None:
        """Ask which of two responses is more like the anchor, unless they are the same text."""
        first, second, target = (self.index_of(solution) for solution in (better, worse, anchor))
        if first != second:
            self.triples.append(
                Triple(question=question, kind=kind, problem_id=anchor.problem_id, better=(first, target),
                       worse=(second, target))
            )  # fmt: skip

    def ask_anchor(self, kind: str, response: LabeledSolution, right: LabeledSolution, other: LabeledSolution) -> None:
        """Ask which of two anchors is more like the response."""
        index, better, worse = (self.index_of(solution) for solution in (response, right, other))
        self.triples.append(
            Triple(
                question="own",
                kind=kind,
                problem_id=response.problem_id,
                better=(index, better),
                worse=(index, worse),
            )
        )


# ------------------------------------------------------------------------------------------------- labeled solutions


def ask_labeled(
    questions: Questions,
    solutions: Sequence[LabeledSolution],
    expert: str | None,
    length: Callable[[LabeledSolution], int],
    seed: int = 0,
) -> None:
    """Ask `equal-wording`, `over-wording` and `own` of right solutions that are labeled by method.

    Args:
        questions: Receives the triples.
        solutions: Several per problem. Unknown wordings count as equal.
        expert: The method of anchors. None: every solution is the anchor once.
        length: Length of a solution, used to find an anchor of another problem that is as long.
        seed: Seed for drawing other problems.
    """
    rng = random.Random(seed)
    by_problem: dict[str, list[LabeledSolution]] = defaultdict(list)
    for solution in solutions:
        by_problem[solution.problem_id].append(solution)
    anchors = [s for s in solutions if expert in (None, s.method)]
    for anchor in anchors:
        others = [s for s in by_problem[anchor.problem_id] if s.text != anchor.text]
        unlabeled = anchor.wording is None
        alike = [s for s in others if s.method == anchor.method and (unlabeled or s.wording != anchor.wording)]
        for better, worse in itertools.product(alike, (s for s in others if s.method != anchor.method)):
            if worse.wording == better.wording:
                questions.ask_response("equal-wording", worse.method, anchor, better, worse)
            elif worse.wording == anchor.wording:
                questions.ask_response("over-wording", worse.method, anchor, better, worse)
        for response in alike:
            _ask_own(questions, response, anchor, _elsewhere(anchors, anchor), length, rng)


def _elsewhere(anchors: Sequence[LabeledSolution], anchor: LabeledSolution) -> list[LabeledSolution]:
    """Anchors of other problems, in the same wording where that is known."""
    return [other for other in anchors if other.problem_id != anchor.problem_id and other.wording == anchor.wording]


def _ask_own(
    questions: Questions,
    response: LabeledSolution,
    anchor: LabeledSolution,
    others: Sequence[LabeledSolution],
    length: Callable[[LabeledSolution], int],
    rng: random.Random,
) -> None:
    if not others:
        return
    questions.ask_anchor("any", response, anchor, rng.choice(others))
    questions.ask_anchor(NEAREST, response, anchor, _nearest(others, anchor, length, rng))


def _nearest(
    others: Sequence[LabeledSolution],
    solution: LabeledSolution,
    length: Callable[[LabeledSolution], int],
    rng: random.Random,
) -> LabeledSolution:
    """The solution nearest in length, drawn at random among equally near ones."""
    gaps = [abs(length(other) - length(solution)) for other in others]
    least = min(gaps)
    return rng.choice([other for other, gap in zip(others, gaps, strict=True) if gap == least])


# --------------------------------------------------------------------------------------------------- the embedded task


def ask_chain(questions: Questions, problems: Sequence[Problem], seed: int = 0) -> None:
    """Ask all but `sampled` of problems of an embedded task: each method in each wording, with the expert's anchors."""
    experts: dict[str, str] = {problem.id: task_of(problem).method_of("expert", problem) for problem in problems}
    for expert in dict.fromkeys(experts.values()):
        labeled = [
            _chain_solution(problem, write_solution(problem, method, wording))
            for problem in problems
            if experts[problem.id] == expert
            for method, wording in itertools.product(task_of(problem).methods, arithmetic.WORDINGS)
        ]
        ask_labeled(questions, labeled, expert, lambda solution: len(solution.text.split()), seed)
    rng = random.Random(seed)
    for problem in problems:
        as_long = [p for p in problems if p.id != problem.id and len(p.prompt) == len(problem.prompt)]
        if not as_long:
            continue
        for wording, anchor_wording in (arithmetic.WORDINGS, arithmetic.WORDINGS[::-1]):
            anchor = _chain_solution(problem, write_solution(problem, experts[problem.id], anchor_wording))
            sound = _chain_solution(problem, write_solution(problem, experts[problem.id], wording))
            for kind, text in chain_flaws(problem, rng.choice(as_long), wording, rng).items():
                questions.ask_response("sound", kind, anchor, sound, _chain_solution(problem, text))


def _chain_solution(problem: Problem, text: str) -> LabeledSolution:
    parsed = parse_solution(text)
    return LabeledSolution(
        problem_id=problem.id, prompt=problem.prompt, text=text, method=parsed.method or "none", wording=parsed.wording
    )


def chain_soundness(problem: Problem, text: str) -> str:
    """Whether every written step of a solution of an embedded task is right: "sound", else how it fails.

    "guess": there are no steps. "wrong step": a step is wrong, or the text follows no known method.
    """
    parsed = parse_solution(text)
    if parsed.method in ("guess", "padded-guess"):
        return "guess"
    if parsed.method is None or parsed.wording is None:
        return "wrong step"
    right = write_solution(problem, parsed.method, parsed.wording, values=arithmetic.running_values(problem))
    return "sound" if _working(text) == _working(right) else "wrong step"


def _working(text: str) -> list[str]:
    return text.partition("<answer>")[0].split()


# ------------------------------------------------------------------------------------------------------------ sampled


def ask_sampled(
    questions: Questions,
    problem: Problem,
    right: Sequence[str],
    soundness: Callable[[Problem, str], str],
    most_pairs: int = 16,
) -> None:
    """Ask `sampled` of a policy's right answers to one problem that has an expert solution.

    Args:
        questions: Receives the triples.
        problem: Its first anchor is the anchor.
        right: Responses that are verified and well formatted.
        soundness: "sound", or how a response fails.
        most_pairs: Largest number of pairs of a sound and an unsound response. More are thinned evenly.
    """

    def solution(text: str) -> LabeledSolution:
        return LabeledSolution(problem_id=problem.id, prompt=problem.prompt, text=text, method="sampled")

    labels = {text: soundness(problem, text) for text in dict.fromkeys(right)}
    sound = [text for text, label in labels.items() if label == "sound"]
    pairs = [(better, worse) for better in sound for worse in labels if labels[worse] != "sound"]
    for better, worse in pairs[:: max(1, -(-len(pairs) // most_pairs))]:
        anchor = solution(problem.anchors[0].text)
        questions.ask_response("sampled", labels[worse], anchor, solution(better), solution(worse))


# ---------------------------------------------------------------------------------------------------- GSM8K solutions


@dataclass(frozen=True, kw_only=True, slots=True)
class RatedSolutions:
    """A problem with its expert solution, and right and wrong solutions of models."""

    problem_id: str
    prompt: Prompt
    expert: str
    right: Sequence[str]
    wrong: Sequence[str]


def ask_rated(questions: Questions, problems: Sequence[RatedSolutions], seed: int = 0) -> None:
    """Ask `own`, `sound` and `natural` of real solutions in lines of text."""
    rng = random.Random(seed)
    anchors = [_rated(problem, problem.expert) for problem in problems]
    for problem, anchor in zip(problems, anchors, strict=True):
        others = _elsewhere(anchors, anchor)
        for text in problem.right[:_MOST_RESPONSES]:
            response = _rated(problem, text)
            if text == problem.expert or not others:
                continue
            _ask_own(questions, response, anchor, others, _characters, rng)
            for kind, flawed in text_flaws(text, _nearest(others, response, _characters, rng).text, rng).items():
                questions.ask_response("sound", kind, anchor, response, _rated(problem, flawed))
            for wrong in problem.wrong[:_MOST_RESPONSES]:
                questions.ask_response("natural", "another writer", anchor, response, _rated(problem, wrong))


def _characters(solution: LabeledSolution) -> int:
    return len(solution.text)


def _rated(problem: RatedSolutions, text: str) -> LabeledSolution:
    return LabeledSolution(problem_id=problem.problem_id, prompt=problem.prompt, text=text, method="real")
