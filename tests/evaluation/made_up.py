"""Evaluations whose numbers are known, because they were made up."""

from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.metrics import pass_at_k


def write_evaluation(folder, name, correct, *, num_samples=8, benchmark="hand", format="boxed", **change) -> str:
    """Write a finished evaluation with so many right samples of each problem; the model's folder."""
    written = EvaluationFolder(folder / name / benchmark)
    identity = {
        "benchmark": {"name": benchmark, "problems_sha256": "p", "num_problems": len(correct), "notes": []},
        "prompt": {"form": "boxed", "format": "boxed", "prompts_sha256": "q"},
        "sampling": {"num_samples": num_samples, "temperature": 1.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 9},
        "model": {"path": name},
    }
    for key, value in change.items():
        part, _, field = key.partition("__")
        identity[part][field] = value
    written.begin(identity, [], overwrite=False)
    problems = [
        {"id": f"p{i}", "num_correct": int(c), "wrong_votes": [int(num_samples - c)]} for i, c in enumerate(correct)
    ]
    pass_at = {"1": sum(pass_at_k(num_samples, int(c), 1) for c in correct) / len(correct)}
    numbers = {"num_samples": num_samples, "format": format, "pass_at": pass_at, "problems": problems}
    written.write_result([], {"sets": {benchmark: numbers}})
    return str(folder / name)
