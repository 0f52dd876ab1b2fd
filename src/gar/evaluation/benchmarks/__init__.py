"""Problem sets to evaluate on, read from the Hub or from a local file with the published columns. None is vendored."""

from gar.evaluation.benchmarks.load import LoadedBenchmark, load_benchmark, problems_hash
from gar.evaluation.benchmarks.prompts import benchmark_prompt, default_form, response_format
from gar.evaluation.benchmarks.registry import BENCHMARKS, Benchmark

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "LoadedBenchmark",
    "benchmark_prompt",
    "default_form",
    "load_benchmark",
    "problems_hash",
    "response_format",
]
