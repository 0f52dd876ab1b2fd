"""How fast answers are graded, compared with math-verify in one process, interleaved in one run.

    python benchmarks/grading.py [--answers 2048] [--rounds 2] [--data FOLDER]

Sets of answers with known verdicts, half of them right: "as in training" (half plain numbers, and eight responses to
each problem, some of which agree), a quarter as many "expressions" (all different) and as many "plain numbers". With
the test data, also the LaTeX gold answers of IMO-AnswerBench and of answer_pairs.jsonl: each against its neighbour, and
against itself as `rewritten` writes it, which counts as right. Ways:

* math-verify: `parse` the gold answer, `parse` the response, `verify`, with its own time limits, as its README does;
* ours, 1 worker and ours, 2 workers: `Verifier` with running workers. Their start is timed separately.

Then the set "as in training" again with towers of powers among them, whose value is out of reach.
Prints medians of CPU seconds (of this process and of the workers, without their start) and of wall-clock seconds, their
ratios within a round, and how many verdicts are right. Writes results/grading.json. On a busy machine trust the CPU
time: the workers are a separate session, and Linux may give the two different shares of the processors.
"""

import argparse
import csv
import functools
import gc
import json
import logging
import os
import random
import re
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import math_verify
from common import machine, print_rows, spread, write_json

from gar import Status
from gar.verify import Verifier, grade_answer, grade_without_parser, parse_response

GROUP_SIZE = 8
NUM_ENDLESS = 16
TIMEOUT_SECONDS = 2.0
MATH_VERIFY, ONE, TWO = "math-verify", "ours, 1 worker", "ours, 2 workers"
WAYS = (MATH_VERIFY, ONE, TWO)
NUM_WORKERS = {ONE: 1, TWO: 2}
SETS = ("as in training", "expressions", "plain numbers")
DATA_SETS = ("IMO-AnswerBench", "answer_pairs")
CLOCKS = ("cpu", "wall")


@dataclass(frozen=True)
class Answer:
    """A response, the gold answer, and whether it is right."""

    response: str
    gold: str
    right: bool


@dataclass(frozen=True)
class Seconds:
    """CPU and wall-clock time."""

    cpu: float
    wall: float


def plain_number(rng: random.Random) -> tuple[str, list[str], list[str]]:
    """A gold answer, and right and wrong answers to it."""
    n = rng.randint(2, 99_999)
    return str(n), [str(n), f"{n:,}", f"{n} dollars", f"${n}$"], [str(n + 1), f"{n}0", f"-{n}", f"{n}.5 dollars"]


def expression(rng: random.Random) -> tuple[str, list[str], list[str]]:
    """The same for fractions, roots, tuples, lists and polynomials."""
    a, b, c = rng.randint(2, 999), rng.choice([7, 11, 13, 17, 19]), rng.randint(2, 99)
    a += a % b == 0
    kinds = [
        (rf"\frac{{{a}}}{{{b}}}", [f"{a}/{b}", rf"\dfrac{{{2 * a}}}{{{2 * b}}}"], [f"{a + 1}/{b}", f"{a / b:.2f}"]),
        (rf"{c}\sqrt{{{b}}}", [rf"\sqrt{{{b}}}\cdot {c}", rf"\sqrt{{{b * c * c}}}"], [rf"{c + 1}\sqrt{{{b}}}", f"{c}"]),
        (f"({a}, {b})", [rf"\left({a},{b}\right)", f"({a},\\ {b})"], [f"({b}, {a})", f"({a}, {b + 1})"]),
        (f"{a}, {b}, {a + b}", [f"{b}, {a + b}, {a}", f"{a}, {a + b}, {b}"], [f"{a}, {b}", f"{a}, {b}, {a - b}"]),
        (f"x^2+{a}x-{c}", [f"-{c}+{a}x+x^2", f"x(x+{a})-{c}"], [f"x^2-{a}x-{c}", f"x^2+{a}x"]),
    ]
    return rng.choice(kinds)


def draw_answers(which: str, num: int) -> list[Answer]:
    """Seeded answers, half of them right: in groups as in training, or each with a separate gold answer."""
    rng = random.Random(which)
    answers: list[Answer] = []
    while len(answers) < num:
        plain = which == SETS[2] or (which == SETS[0] and rng.random() < 0.5)
        gold, right, wrong = plain_number(rng) if plain else expression(rng)
        for _ in range(GROUP_SIZE if which == SETS[0] else 1):
            is_right = rng.random() < 0.5
            answers.append(Answer(rf"So it is \boxed{{{rng.choice(right if is_right else wrong)}}}.", gold, is_right))
    return answers[:num]


def rewritten(gold: str) -> str:
    r"""A gold answer in other notation: a slash for `\\frac`, the other order of a sum or a list, or parentheses."""
    plain = gold.strip().removesuffix(".").strip("$ ")
    slashed = re.sub(r"\\[dt]?frac *\{([^{}]*)\} *\{([^{}]*)\}", r"(\1)/(\2)", plain)
    if slashed != plain:
        return slashed
    for sign in (", ", ",", "+"):
        first, found, rest = plain.partition(sign)
        if found and not set("=()[]{}\\<>") & set(plain):
            return f"{rest}{sign}{first}"
    return plain if re.search("[=<>,]|[A-Za-z]{3}", plain) else f"({plain})"


def read_answers(which: str, folder: Path) -> list[Answer]:
    """The LaTeX gold answers of a file, each against its neighbour and against itself rewritten."""
    if which == DATA_SETS[0]:
        with (folder / "imo_answerbench_v2.csv").open(newline="") as file:
            golds = [row["Short Answer"].strip() for row in csv.DictReader(file)]
    else:
        golds = [json.loads(line)["gold"] for line in (folder / "answer_pairs.jsonl").read_text().splitlines()]
    golds = [gold for gold in dict.fromkeys(golds) if re.search(r"[\\^(\[=<>]", gold)]
    pairs = [(gold, rewritten(gold), True) for gold in golds]
    pairs += [(gold, other, False) for gold, other in zip(golds, golds[1:] + golds[:1], strict=True)]
    return [Answer(rf"So it is \boxed{{{answer.strip('$ ')}}}.", gold, right) for gold, answer, right in pairs]


def clear_caches() -> None:
    """Forget what an earlier way or round parsed and evaluated."""
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and cached.__module__.startswith("gar."):
            cached.cache_clear()


def routes(answers: Sequence[Answer]) -> dict[str, Any]:
    """How many answers workers grade, and the CPU seconds of one process for these and for the others."""
    items = [(parse_response(answer.response, format="boxed").answer or "", answer.gold) for answer in answers]
    parsed = [item for item in items if not grade_without_parser(*item)]
    others = [item for item in items if item not in set(parsed)]
    seconds = []
    for some in (parsed, others):
        clear_caches()
        start = time.process_time()
        for item in some:
            grade_answer(*item)
        seconds.append(time.process_time() - start)
    return {"num_in_workers": len(parsed), "worker_seconds": seconds[0], "other_seconds": seconds[1]}


def by_math_verify(answers: Sequence[Answer]) -> list[bool]:
    return [
        math_verify.verify(math_verify.parse(f"${answer.gold}$"), math_verify.parse(answer.response))
        for answer in answers
    ]


def started_verifier(num_workers: int) -> Verifier:
    """A verifier with running workers."""
    verifier = Verifier(format="boxed", num_workers=num_workers, timeout_seconds=TIMEOUT_SECONDS)
    verifier.verify([rf"\boxed{{\sqrt{{{k + 3}}}}}" for k in range(2 * num_workers)], [r"\sqrt{2}"] * 2 * num_workers)
    return verifier


def cpu_seconds() -> float:
    """CPU time of this process and of its ended children: keepers and workers."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def time_of_start(num_workers: int) -> Seconds:
    """Time to start the workers and to end them."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    started_verifier(num_workers).close()
    return Seconds(cpu=cpu_seconds() - cpu, wall=time.perf_counter() - wall)


def time_of_math_verify(answers: Sequence[Answer]) -> tuple[Seconds, int]:
    """Seconds, and how many verdicts are right."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    verdicts = by_math_verify(answers)
    taken = Seconds(cpu=cpu_seconds() - cpu, wall=time.perf_counter() - wall)
    return taken, sum(given == answer.right for given, answer in zip(verdicts, answers, strict=True))


def time_of_ours(answers: Sequence[Answer], num_workers: int, start: Seconds) -> tuple[Seconds, int]:
    """The same with new workers. Their start does not count."""
    clear_caches()
    cpu = cpu_seconds()
    with started_verifier(num_workers) as verifier:
        wall = time.perf_counter()
        verdicts = verifier.verify([answer.response for answer in answers], [answer.gold for answer in answers])
        wall = time.perf_counter() - wall
    taken = Seconds(cpu=cpu_seconds() - cpu - start.cpu, wall=wall)
    return taken, sum(given.verified == answer.right for given, answer in zip(verdicts, answers, strict=True))


def run(num_answers: int, rounds: int, data: Path | None) -> dict[str, Any]:
    """All measurements, A B C A B C."""
    starts = {name: time_of_start(num_workers) for name, num_workers in NUM_WORKERS.items()}
    by_math_verify(draw_answers(SETS[1], 8))  # its imports and caches
    sizes = (num_answers, num_answers // 4, num_answers)
    sets = {which: draw_answers(which, num) for which, num in zip(SETS, sizes, strict=True)}
    if data is not None:
        sets |= {which: read_answers(which, data) for which in DATA_SETS}
    seconds: dict[str, dict[str, list[Seconds]]] = {which: {name: [] for name in WAYS} for which in sets}
    num_right = {which: dict.fromkeys(WAYS, 0) for which in sets}
    with_endless: list[float] = []
    for number in range(rounds):
        for which, answers in sets.items():
            for name in WAYS:
                if name == MATH_VERIFY:
                    taken, num_right[which][name] = time_of_math_verify(answers)
                else:
                    taken, num_right[which][name] = time_of_ours(answers, NUM_WORKERS[name], starts[name])
                seconds[which][name].append(taken)
        with started_verifier(2) as verifier:
            with_endless.append(_time_with_endless(verifier, sets[SETS[0]], number))
    alone = [taken.wall for taken in seconds[SETS[0]][TWO]]
    return {
        "seconds": {
            which: {name: _medians(taken) for name, taken in by_name.items()} for which, by_name in seconds.items()
        },
        "times_as_fast_as_math_verify": {
            which: {name: _ratios(by_name[MATH_VERIFY], by_name[name]) for name in NUM_WORKERS}
            for which, by_name in seconds.items()
        },
        "right_verdicts": num_right,
        "routes": {which: routes(answers) for which, answers in sets.items()},
        "with_endless_ratio": spread([a / b for a, b in zip(with_endless, alone, strict=True)]),
        "with_endless_seconds": spread(with_endless),
        "added_by_endless_seconds": spread([a - b for a, b in zip(with_endless, alone, strict=True)]),
        "start_seconds": {name: asdict(start) for name, start in starts.items()},
        "machine": {**machine(), "load": os.getloadavg()[0]},
        "settings": {
            "num_answers": {which: len(answers) for which, answers in sets.items()},
            "rounds": rounds,
            "endless": NUM_ENDLESS,
            "timeout_seconds": TIMEOUT_SECONDS,
            "math_verify": version("math-verify"),
        },
    }


def _medians(taken: Sequence[Seconds]) -> dict[str, float]:
    return {clock: statistics.median(asdict(seconds)[clock] for seconds in taken) for clock in CLOCKS}


def _ratios(theirs: Sequence[Seconds], ours: Sequence[Seconds]) -> dict[str, dict[str, float]]:
    return {
        clock: spread([asdict(a)[clock] / asdict(b)[clock] for a, b in zip(theirs, ours, strict=True)])
        for clock in CLOCKS
    }


def _time_with_endless(verifier: Verifier, answers: Sequence[Answer], number: int) -> float:
    """The same answers with endless ones spread among them. All ordinary verdicts must stay as they were."""
    step = len(answers) // NUM_ENDLESS
    mixed: list[Answer] = []
    for i in range(NUM_ENDLESS):
        mixed.append(Answer(rf"\boxed{{9^{{9^{{9^{{{9 + NUM_ENDLESS * number + i}}}}}}}}}", "7^7", False))
        mixed += answers[step * i : step * (i + 1) if i + 1 < NUM_ENDLESS else None]
    begin = time.perf_counter()
    verdicts = verifier.verify([answer.response for answer in mixed], [answer.gold for answer in mixed])
    seconds = time.perf_counter() - begin
    num_timeouts = sum(verdict.status is Status.TIMEOUT for verdict in verdicts)
    num_right = sum(verdict.verified == answer.right for verdict, answer in zip(verdicts, mixed, strict=True))
    if (num_timeouts, num_right) != (0, len(mixed)):
        raise SystemExit(f"{num_timeouts} of {len(mixed)} ended by timeout, {num_right} are right.")
    return seconds


def print_result(result: dict[str, Any]) -> None:
    rows = []
    for which, by_name in result["seconds"].items():
        num = result["settings"]["num_answers"][which]
        for name, seconds in by_name.items():
            ratios = result["times_as_fast_as_math_verify"][which].get(name)
            cells = [text for clock in CLOCKS for text in (
                f"{seconds[clock]:.1f}", f"{ratios[clock]['median']:.2f}" if ratios else "1")]  # fmt: skip
            right = f"{result['right_verdicts'][which][name] / num:.1%}"
            rows.append([f"{num} {which}", name, *cells, right])
    ratio, added, start = result["with_endless_ratio"], result["added_by_endless_seconds"], result["start_seconds"][TWO]
    notes = [
        f"With {NUM_ENDLESS} towers of powers among them ({SETS[0]}, 2 workers): {ratio['median']:.2f} times as long "
        f"({ratio['min']:.2f} to {ratio['max']:.2f}), {added['median']:.1f} s more.",
        f"Start of two workers: {start['cpu']:.1f} s of CPU time, {start['wall']:.1f} s by the clock.",
    ]
    notes += [
        f"{which}: workers grade {route['num_in_workers']} answers. In one process these take "
        f"{route['worker_seconds']:.2f} s and the others {route['other_seconds']:.2f} s."
        for which, route in result["routes"].items()
    ]
    headings = ["answers", "way", "CPU s", "faster", "wall s", "faster", "right"]
    print_rows("Grading, against math-verify in one process", headings, rows, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data", type=Path, default=os.environ.get("GAR_TEST_DATA"), help="folder of the test data")
    parser.add_argument("--out", type=Path, default=Path("results/grading.json"))
    arguments = parser.parse_args()
    if arguments.answers < NUM_ENDLESS or arguments.rounds < 1:
        parser.error(f"--answers must be at least {NUM_ENDLESS} and --rounds at least 1")
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    result = run(arguments.answers, arguments.rounds, arguments.data and Path(arguments.data))
    print_result(result)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
