"""The known benchmarks. `docs/evaluation.md` lists those that were never loaded here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gar.settings import EMBEDDED_TASKS

_IMO_LOWER_BOUND = (
    "The official grader of IMO-AnswerBench is a language model. Here rules compare the answers, which gives a lower "
    "bound."
)

_IMO_TORN = frozenset({"imo-bench-algebra-036"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A known set of problems.

    Attributes:
        name: As `--benchmark` takes it.
        title: Its name as its authors write it.
        num_problems: Published number of problems. Any other number is allowed, with a note.
        schema: Name of the column schema in `gar.data.schemas`. None: the benchmark is part of the package.
        hub_id: Data set on the Hub, "" if there is none.
        subset: Configuration of the data set. For a benchmark inside the package, the task.
        split: Split of the data set.
        gated: The Hub asks for a login and consent.
        instead: What to do if there is no Hub id.
        answer_hint: The authors' sentence on the form of the answer, for the boxed form.
        problems_hash: `problems_hash` of the published problems, if known.
        not_hash: `problems_hash` of another version, which is rejected.
        bad_answers: Gold answers known to be broken, by id.
        torn_ids: Problems whose row in the published CSV has too few fields.
        note: A note to print with every result.
    """

    name: str
    title: str
    num_problems: int
    schema: str | None = None
    hub_id: str = ""
    subset: str | None = None
    split: str = "test"
    gated: bool = False
    instead: str = ""
    answer_hint: str = ""
    problems_hash: str = ""
    not_hash: str = ""
    bad_answers: Mapping[str, str] = field(default_factory=dict)
    torn_ids: frozenset[str] = frozenset()
    note: str = ""


IMO_V2_HASH = "a54223c4cd9544f0edf47b7a63406cf3a8e7709c718307bd09a7a4bb1902802e"

_ALL = (
    Benchmark(
        name="aime-2026",
        title="AIME 2026",
        num_problems=30,
        schema="matharena",
        hub_id="MathArena/aime_2026",
        split="train",
        answer_hint="The answer is an integer between 0 and 999 inclusive.",
    ),
    Benchmark(
        name="hmmt-feb-2025",
        title="HMMT February 2025",
        num_problems=30,
        schema="matharena",
        hub_id="MathArena/hmmt_feb_2025",
        split="train",
    ),
    Benchmark(
        name="hmmt-feb-2026",
        title="HMMT February 2026",
        num_problems=33,
        schema="matharena",
        hub_id="MathArena/hmmt_feb_2026",
        split="train",
    ),
    Benchmark(
        name="imo-answerbench-v1",
        title="IMO-AnswerBench v1",
        num_problems=400,
        schema="imo-answerbench",
        hub_id="OpenEvals/IMO-AnswerBench",
        split="train",
        not_hash=IMO_V2_HASH,
        torn_ids=_IMO_TORN,
        note=_IMO_LOWER_BOUND + " Version 1 is deprecated: 29 rows differ from version 2. The GAR paper used it.",
    ),
    Benchmark(
        name="imo-answerbench-v2",
        title="IMO-AnswerBench v2",
        num_problems=400,
        schema="imo-answerbench",
        instead="Its makers publish it as a file, answerbench_v2.csv, in the repository google-deepmind/superhuman",
        problems_hash=IMO_V2_HASH,
        torn_ids=_IMO_TORN,
        bad_answers={
            "imo-bench-algebra-036": "a misplaced quote leaves the word 'Algebra' as the answer",
            "imo-bench-geometry-004": "the answer 45752 is a date that a spreadsheet turned into a number",
            "imo-bench-geometry-096": "the answer has a dollar sign without a partner",
        },
        note=_IMO_LOWER_BOUND,
    ),
    Benchmark(
        name="gpqa-diamond",
        title="GPQA Diamond",
        num_problems=198,
        schema="gpqa",
        hub_id="Idavidrein/gpqa",
        subset="gpqa_diamond",
        split="train",
        gated=True,
        note="Its makers ask that its questions be shown nowhere in public.",
    ),
    Benchmark(name="mmlu-pro", title="MMLU-Pro", num_problems=12_032, schema="mmlu-pro", hub_id="TIGER-Lab/MMLU-Pro"),
    Benchmark(name="math-500", title="MATH-500", num_problems=500, schema="math-500", hub_id="HuggingFaceH4/MATH-500"),
    Benchmark(name="gsm8k", title="GSM8K", num_problems=1_319, schema="gsm8k", hub_id="openai/gsm8k", subset="main"),
    *(
        Benchmark(name=name, title=f"the embedded task {task}{longer}", num_problems=200, subset=task, split=split)
        for task in EMBEDDED_TASKS
        for name, longer, split in ((task, "", "test"), (f"{task}-harder", ", longer", "harder"))
    ),
)

BENCHMARKS: Mapping[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
"""By name."""
