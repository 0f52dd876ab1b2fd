"""The known benchmarks. `docs/evaluation.md` lists those that were never loaded here."""

from collections.abc import Mapping
from dataclasses import dataclass

from gar.types import PromptTemplate

_IMO_LOWER_BOUND = (
    "The official grader of IMO-AnswerBench is a language model. Here rules compare the answers, which gives a lower "
    "bound."
)

_IMO_TORN = frozenset({"imo-bench-algebra-036"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A known set of problems. `hub_id`, `subset` and `split` name its data set on the Hub.

    Attributes:
        num_problems: Published number of problems. Any other number is allowed, with a note.
        schema: Name of the column schema in `gar.data.schemas`. None: it is in the package, or a file of problems.
        access: How to get it, if a Hub id is not enough.
        template: The template of its prompts, if `--template` names none.
        problems_hash: `problems_hash` of the published problems, if known. No other benchmark may have them.
        torn_ids: Problems with too few fields in their row of the published CSV.
        note: A note to print with every result.
    """

    name: str
    num_problems: int
    schema: str | None = None
    hub_id: str = ""
    subset: str | None = None
    split: str = "test"
    access: str = ""
    template: PromptTemplate = "think-answer"
    problems_hash: str = ""
    torn_ids: frozenset[str] = frozenset()
    note: str = ""


_ALL = (
    *(
        Benchmark(name=name, num_problems=number, schema="matharena", hub_id=f"MathArena/{hub_name}", split="train")
        for name, number, hub_name in (
            ("aime-2026", 30, "aime_2026"),
            ("hmmt-feb-2025", 30, "hmmt_feb_2025"),
            ("hmmt-feb-2026", 33, "hmmt_feb_2026"),
        )
    ),
    Benchmark(
        name="imo-answerbench-v1",
        num_problems=400,
        schema="imo-answerbench",
        hub_id="OpenEvals/IMO-AnswerBench",
        split="train",
        torn_ids=_IMO_TORN,
        note=_IMO_LOWER_BOUND + " Version 1 is deprecated: 29 rows differ from version 2. The GAR paper used it.",
    ),
    Benchmark(
        name="imo-answerbench-v2",
        num_problems=400,
        schema="imo-answerbench",
        access="Its makers publish it as a file, answerbench_v2.csv, in the repository google-deepmind/superhuman.",
        problems_hash="a54223c4cd9544f0edf47b7a63406cf3a8e7709c718307bd09a7a4bb1902802e",
        torn_ids=_IMO_TORN,
        note=_IMO_LOWER_BOUND
        + " Three gold answers are broken: algebra-036 (the word 'Algebra'), geometry-004 (45752, "
        "a date that became a number) and geometry-096 (a dollar sign without a partner).",
    ),
    Benchmark(
        name="gpqa-diamond",
        num_problems=198,
        schema="gpqa",
        hub_id="Idavidrein/gpqa",
        subset="gpqa_diamond",
        split="train",
        access="Accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa, and log in once: `hf auth login`.",
        note="Its makers ask that its questions be shown nowhere in public.",
    ),
    Benchmark(name="mmlu-pro", num_problems=12_032, schema="mmlu-pro", hub_id="TIGER-Lab/MMLU-Pro"),
    Benchmark(name="math-500", num_problems=500, schema="math-500", hub_id="HuggingFaceH4/MATH-500"),
    Benchmark(name="gsm8k", num_problems=1_319, schema="gsm8k", hub_id="openai/gsm8k", subset="main"),
    Benchmark(name="arithmetic", num_problems=200, split="test", template="plain"),
    Benchmark(name="arithmetic-harder", num_problems=200, split="harder", template="plain"),
)

BENCHMARKS: Mapping[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
"""By name."""
