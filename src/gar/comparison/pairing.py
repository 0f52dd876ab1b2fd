"""Results of a comparison are of the same problems, in training and in evaluation."""

from collections.abc import Sequence

from gar.comparison.result import Results, RunResult, SetCounts
from gar.errors import RecordError


def check_paired(results: Results) -> None:
    """Reject results on different problems: in training within a seed or a row, and in evaluation anywhere.

    Rows of a seed saw the same ids in the same order. The seeds of a row saw the same prompts, answers and solutions,
    as far as one version of gar made their hashes.

    Sampled responses cannot be paired: policies differ after the first update, and so do their samples.

    Raises:
        RecordError: Names the two runs, and what differs.
    """
    by_seed: dict[int, RunResult] = {}
    by_row: dict[tuple[str, str | None], RunResult] = {}
    first = next(iter(results.values()), None)
    for result in results.values():
        other = by_seed.setdefault(result.seed, result) if result.prompts_hash else result
        if result.prompts_hash != other.prompts_hash:
            raise RecordError(
                f"{result.label} and {other.label} of seed {result.seed} were not trained on the same problems in the "
                "same order, so that the methods cannot be compared. Do their rows differ in data, batch, "
                "generations, updates per rollout or steps? Put such rows into comparisons of their own."
            )
        row = result.label, result.versions.get("gar-rl")
        other = by_row.setdefault(row, result) if result.data_hash else result
        if result.data_hash != other.data_hash:
            raise RecordError(
                f"{result.label}: seeds {other.seed} and {result.seed} were not trained on the same data, under the "
                f"same ids and the same data.source, {result.settings['data']['source']!r}. Was it changed in between? "
                "Remove the run folders of the one or the other, and repeat the command."
            )
        assert first is not None
        for name in result.sets.keys() | first.sets.keys():
            a, b = (r.sets.get(name) for r in (result, first))
            if a is None or b is None or _measured(a, like=b) != _measured(b, like=a):
                raise RecordError(
                    f"{result.label}, seed {result.seed}, and {first.label}, seed {first.seed}, were not evaluated on "
                    f"the same problems of {name!r} with the same number of samples. Was its file changed in between?"
                )


def _measured(counts: SetCounts, *, like: SetCounts) -> tuple[Sequence[str], int, str | None]:
    """Problems and samples of a set. The hash of the problems where both results have one."""
    return counts.problem_ids, counts.num_samples, like.problems_hash and counts.problems_hash
