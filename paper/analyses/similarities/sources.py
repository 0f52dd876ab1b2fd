"""Sources of questions: the chain tasks, labeled solutions, rated solutions, and the policy's own samples."""

import ast
import operator
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gar import DataError, Problem, Prompt
from gar.data import iter_rows
from paper.analyses.policies import Policy, sampled_groups
from paper.analyses.similarities.flaws import split_answer, without_annotations
from paper.analyses.similarities.questions import (
    Questions,
    RatedSolutions,
    ask_chain,
    ask_labeled,
    ask_rated,
    ask_sampled,
    chain_soundness,
)
from paper.analyses.similarities.solutions import read_solutions, solution_sequences

_MOST_RESPONSE_TOKENS = 256
_EQUATION = re.compile(r"(?P<left>[\d.,$%()\sx×*/+-]*\d[\d.,$%()\sx×*/+-]*)=\s*\$?\s*(?P<right>-?\d[\d,]*(?:\.\d+)?)")
_LONGEST_CALCULATION = 100
"""Characters. A model may write thousands of brackets."""
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The questions to ask, and how many of each.

    Attributes:
        solutions: A file with labeled solutions (prompt, solution, method) or rated ones (question, ground_truth, and
            columns with solution and is_correct). None: the policy's problems, if they belong to a chain task.
        expert: The method of anchors. None: the expert's method in a chain task, every method in a file.
        num_problems: Most problems to use, after the first `skip`.
        skip: Problems to leave out.
        sampled_problems: Problems for the policy itself to answer. 0 leaves `sampled` out.
        num_samples: Responses to each of those.
        seed: Seed for drawing other problems, flaws and samples.
    """

    solutions: str | Path | None = None
    expert: str | None = None
    num_problems: int = 60
    skip: int = 0
    sampled_problems: int = 60
    num_samples: int = 16
    seed: int = 0


def questions_for(policy: Policy, scope: Scope) -> Questions:
    """All questions but `sampled`: of a file of solutions, or of a chain task's problems.

    Raises:
        DataError: The file cannot be read, or a row of it lacks a column.
    """
    questions, chosen = Questions(), slice(scope.skip, scope.skip + scope.num_problems)
    if scope.solutions is None:
        if policy.task:
            ask_chain(questions, policy.problems[chosen], scope.seed)
        return questions
    if "ground_truth" in next(iter_rows(str(scope.solutions)), (0, {}))[1]:
        ask_rated(questions, read_rated(scope.solutions, policy)[chosen], scope.seed)
        return questions
    labeled = read_solutions(scope.solutions)
    ids = set(list(dict.fromkeys(solution.problem_id for solution in labeled))[chosen])
    kept = [solution for solution in labeled if solution.problem_id in ids]
    lengths = {id(s): len(t.positions) for s, t in zip(kept, solution_sequences(policy, kept), strict=True)}
    ask_labeled(questions, kept, scope.expert, lambda solution: lengths[id(solution)], scope.seed)
    return questions


def read_rated(path: str | Path, policy: Policy) -> list[RatedSolutions]:
    """Problems with an expert solution and models' solutions, without the calculator's notes.

    Raises:
        DataError: The file cannot be read, or a row has no `question` or no `ground_truth`. The message has the line.
    """
    rated = []
    for number, row in iter_rows(str(path)):
        missing = [name for name in ("question", "ground_truth") if not isinstance(row.get(name), str)]
        if missing:
            raise DataError(f"{path}:{number}: no '{missing[0]}'. Expected question, ground_truth and rated solutions.")
        written = [value for value in row.values() if isinstance(value, dict) and "solution" in value]
        texts = [(without_annotations(str(value["solution"])), bool(value.get("is_correct"))) for value in written]
        rated.append(
            RatedSolutions(
                problem_id=str(row.get("id") or f"line-{number}"),
                prompt=_as_chat(row["question"], policy.tokenizer),
                expert="\n".join(split_answer(row["ground_truth"])[0]),
                right=[text for text, right in texts if right],
                wrong=[text for text, right in texts if not right],
            )
        )
    return rated


def for_text(policy: Policy, solutions: str | Path | None) -> Policy:
    """The policy set up for plain text: responses without tags, and chat prompts where it has a chat template.

    A run keeps the format it was trained on, and so do chain tasks and solutions with thinking tags.

    Raises:
        DataError: The file of solutions cannot be read.
    """
    if solutions is None:
        tagged = policy.task is not None
    else:
        tagged = policy.tags.think_open in str(next(iter_rows(str(solutions)), ""))
    if policy.run is not None or tagged:
        return policy
    verify = policy.config.verify.model_copy(update={"format": "none"})
    limit = {"max_completion_length": _MOST_RESPONSE_TOKENS} | dict(policy.config.trl)
    problems = [replace(p, prompt=_as_chat(p.prompt, policy.tokenizer)) for p in policy.problems]
    return replace(policy, problems=problems, config=policy.config.model_copy(update={"verify": verify, "trl": limit}))


def _as_chat(prompt: Prompt, tokenizer: Any) -> Prompt:
    if not isinstance(prompt, str):
        return prompt
    return [{"role": "user", "content": prompt}] if tokenizer.chat_template else f"{prompt}\n"


def sample_questions(questions: Questions, policy: Policy, scope: Scope) -> str:
    """Ask `sampled` of fresh responses to the policy's problems with an expert solution, after the first `skip`.

    Returns:
        A sentence with the counts.
    """
    anchored = [problem for problem in policy.problems if problem.anchors]
    problems, num_samples = anchored[scope.skip : scope.skip + scope.sampled_problems], scope.num_samples
    if not problems:
        return "sampled: no problem with an expert solution."
    before = len(questions.triples)
    soundness = chain_soundness if policy.task else text_soundness
    num_right = 0
    for group in sampled_groups(policy, problems, num_samples=num_samples, seed=scope.seed):
        right = [text for text, eligible in zip(group.texts, group.eligible, strict=True) if eligible]
        num_right += len(right)
        ask_sampled(questions, group.problem, right, soundness)
    return (
        f"sampled: {num_right:,} of {len(problems) * num_samples:,} responses to {len(problems)} problems are right; "
        f"{len(questions.triples) - before:,} pairs of a sound and an unsound one."
    )


def text_soundness(problem: Problem, text: str) -> str:
    """Whether the calculations of a text are right: "sound", "wrong step", or "no steps" where it has none.

    Only equations of numbers and + - * / are checked, so that wrong reasoning with right arithmetic passes.
    """
    lines, _ = split_answer(text)
    checked = [verdict for line in lines for verdict in map(_holds, _EQUATION.finditer(line)) if verdict is not None]
    return "no steps" if not checked else "sound" if all(checked) else "wrong step"


def _holds(match: re.Match[str]) -> bool | None:
    """Whether an equation is right. None if it is not a calculation."""
    left = re.sub(r"[$,%]", "", match["left"]).replace("x", "*").replace("×", "*").strip()
    if len(left) > _LONGEST_CALCULATION:
        return None
    try:
        value = _value(ast.parse(left, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
        return None
    written = float(match["right"].replace(",", ""))
    return None if value is None else abs(value - written) <= 0.01 * max(1.0, abs(written))


def _value(node: ast.AST) -> float | None:
    """The value of a calculation. None for a number alone.

    Raises:
        ValueError: It is not a calculation with the four operations.
    """

    def number(part: ast.AST) -> float:
        if isinstance(part, ast.Constant) and isinstance(part.value, int | float):
            return float(part.value)
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
            return -number(part.operand)
        if isinstance(part, ast.BinOp) and type(part.op) in _OPERATORS:
            return _OPERATORS[type(part.op)](number(part.left), number(part.right))
        raise ValueError("not a calculation")

    return number(node) if isinstance(node, ast.BinOp) else None
