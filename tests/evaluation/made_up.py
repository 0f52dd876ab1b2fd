"""Evaluations whose numbers are known, because they were made up."""

from gar.evaluation.folder import EvaluationFolder
from gar.records.files import json_text, write_atomic


def write_evaluation(folder, name, correct, *, num_samples=8, benchmark="hand", **change) -> str:
    """Write a finished evaluation with so many right samples of each problem; the model's folder."""
    written = EvaluationFolder(folder / name / benchmark)
    identity = {
        "benchmark": {"name": benchmark, "problems_sha256": "p", "num_problems": len(correct), "notes": []},
        "prompt": {"form": "boxed", "format": "boxed", "prompts_sha256": "q"},
        "sampling": {"num_samples": num_samples, "temperature": 1.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 9},
        "model": {"name": name},
    }
    for key, value in change.items():
        part, _, field = key.partition("__")
        identity[part][field] = value
    write_atomic(written.set_path, json_text(identity))
    problems = [
        {"id": f"p{i}", "category": "", "num_correct": c, "wrong_votes": [num_samples - c]}
        for i, c in enumerate(correct)
    ]
    metrics = {"num_samples": num_samples, "format": "boxed", "pass_at": {}, "problems": problems}
    write_atomic(written.metrics_path, json_text(metrics))
    return str(folder / name)
