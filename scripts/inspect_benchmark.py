"""A benchmark as a task of Inspect, graded by gar; needs the extra `inspect`.

    inspect eval scripts/inspect_benchmark.py -T benchmark=math-500 --model hf/Qwen/Qwen3-0.6B

Options of the task, each with -T: benchmark, prompt, samples, limit, shots; see `gar.evaluation.inspect_task`.
"""

from inspect_ai import Task, task

from gar.evaluation.inspect_task import benchmark_task
from gar.evaluation.job import PromptForm


@task
def benchmark(
    benchmark: str,
    prompt: PromptForm | None = None,
    samples: int | None = None,
    limit: int | None = None,
    shots: str | None = None,
) -> Task:
    """One benchmark, see `gar eval list`."""
    return benchmark_task(benchmark, prompt=prompt, samples=samples, limit=limit, shots=shots)
