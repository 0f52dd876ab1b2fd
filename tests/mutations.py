"""How much do the tests notice? Sixty faults are put into src/gar, one at a time, and the tests of its part are run.

    python tests/mutations.py            # all in a copy of the last commit: about 40 minutes. A repeated call continues
    python tests/mutations.py --check    # only whether each text is in its file once

A mutation is killed if a test fails. Survivors are faults that no test notices: write one, or explain why not.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[1]
OUT = HOME / "runs" / "mutations.jsonl"  # results, one per line
SECONDS = 300  # a test that hangs for so long has noticed, too


class Mutation(NamedTuple):
    """One fault."""

    file: str  # below src/gar
    old: str  # a text that it holds once
    new: str  # the text in its place
    tests: str  # folders or files below tests/, in the order in which they run. If a file is gone, its folder


CORE = "core/test_advantages.py core/test_rewards.py core/test_groups.py"

MUTATIONS = (
    # core: the arithmetic
    Mutation("core/rewards.py", "shifted = shifted.clamp(min=0.0)", "pass", CORE),
    Mutation("core/groups.py", "(group_sizes(group_index, mask) - ddof)", "(group_sizes(group_index, mask) - 1)", CORE),
    Mutation("core/advantages.py", "ddof=ddof).clamp(min=min_std) + eps", "ddof=ddof) + eps", CORE),
    Mutation("core/advantages.py", "/ (total - ddof).clamp(min=1)", "/ total", "core/test_advantages.py"),
    Mutation("core/alignment.py", "usable = (anchors != 0).any(-1)", "usable = (anchors == anchors).any(-1)",
             "core/test_alignment.py"),
    Mutation("core/vectors.py", "usable = norms.isfinite() & (norms >= NORM_FLOOR)", "usable = norms >= NORM_FLOOR",
             "core/test_gradients.py core/test_gradients_precision.py"),
    Mutation("core/vectors.py", "counts * (1.0 - 2e-7)", "counts",
             "core/test_gradients.py core/test_gradients_precision.py"),
    Mutation("core/head.py", "        weighted *= head.slope", "        weighted *= head.logit_scale",
             "core/test_gradients.py"),
    Mutation("core/novelty.py", "(rows @ rows.T).square()", "(rows @ rows.T).abs()", "core/test_novelty.py"),
    Mutation("core/policy_losses.py", "factors.clamp(_A_LOW, _A_HIGH)", "factors", "core/test_policy_losses.py"),
    Mutation("core/head.py", "head.slope * bias - reference", "bias - reference", "core/test_gradients.py"),
    Mutation("core/vectors.py", "(norms >= NORM_FLOOR * counts)", "(norms >= NORM_FLOOR)",
             "core/test_attribution.py core/test_gradients_precision.py"),
    # methods and the one path: settings that have to arrive
    Mutation("methods/base.py", "batch.verified & batch.well_formatted", "batch.verified", "methods"),
    Mutation("methods/plan.py", "self.engine.ddof if self.advantage.ddof is None else self.advantage.ddof",
             "self.engine.ddof", "methods test_step.py"),
    Mutation("methods/plan.py", "advantage.eps is not None or advantage.min_std > 0", "advantage.eps is not None",
             "methods test_step.py integrations/test_trl_trainer.py"),
    Mutation("methods/g2rl.py", "usable = (batch.vectors != 0).any(-1)", "usable = batch.verified == batch.verified",
             "methods/test_methods.py"),
    Mutation("step.py", "group_sizes(self.group_index, needed) >= 2",
             "group_sizes(self.group_index, needed) >= 1",
             "test_step.py methods"),
    Mutation("scoring/forward.py", "[settings.expert_keep_fraction] * len(anchors)", "[1.0] * len(anchors)",
             "test_step.py scoring"),
    Mutation("reader.py", "prompt, chat_template_kwargs=self._chat_template_kwargs)", "prompt)",
             "scoring/test_anchors.py"),
    Mutation("scoring/forward.py", "(longest > switch_length) == (lengths[i] > switch_length)", "True",
             "models/test_families.py"),
    # the reader: which tokens are scored
    Mutation("reader.py", "offset + len(piece) <= end", "offset + len(piece) < end", "test_reader.py"),
    Mutation("reader.py", "length <= self._context", "length < self._context", "test_reader.py"),
    Mutation("reader.py", 'if rule.limit_from == "end" else', 'if rule.limit_from == "" else', "test_reader.py"),
    # verify: the grader accepts, or waits
    Mutation("verify/format.py", "if text.count(tag) != count:", "if text.count(tag) < count:",
             "verify/test_format.py"),
    Mutation("verify/answers.py", "and is_copy(parsed, gold, prompt):", "and not is_copy(parsed, gold, prompt):",
             "verify/test_cases.py"),
    Mutation("verify/answers.py", "is_undone_arithmetic(answer.value)", "is_undone_arithmetic(gold.value)",
             "verify/test_cases.py"),
    Mutation("verify/numbers.py", "or not decimal or gold.denominator == 1:", "or not decimal:",
             "verify/test_cases.py"),
    Mutation("verify/verifier.py", "verified=outcome.status is Status.OK", "verified=outcome.grade > 0", "verify"),
    Mutation("verify/keeper.py", "Graded(status=Status.TIMEOUT", "Graded(status=Status.WRONG",
             "verify/test_workers.py"),
    # evaluation: pass@k, votes and tests
    Mutation("evaluation/metrics.py", "range(num_wrong + 1, num_samples + 1)", "range(num_wrong, num_samples)",
             "evaluation/test_metrics.py"),
    Mutation("evaluation/metrics.py", "/ total / (ties + 1)", "/ total", "evaluation/test_metrics.py"),
    Mutation("response.py", "return self.verdict.verified and self.verdict.well_formatted",
             "return self.verdict.verified", "evaluation/test_grading.py evaluation/test_evaluate.py"),
    Mutation("evaluation/paired.py", "differences = rates - reference", "differences = rates - reference[:, ::-1]",
             "evaluation/test_paired.py evaluation/test_statistics.py"),
    Mutation("evaluation/paired.py", " and num_samples_reference >= {k}", "", "evaluation/test_paired.py"),
    Mutation("evaluation/statistics.py", "[(1 - 0.95) / 2, (1 + 0.95) / 2]", "[(1 - 0.94) / 2, (1 + 0.94) / 2]",
             "evaluation/test_statistics.py"),
    Mutation("evaluation/scoring.py", "if each.well_formatted and each.answer is not", "if each.answer is not",
             "evaluation/test_grading.py"),
    Mutation("evaluation/statistics.py", "(m - rank) * p_values[i]", "m * p_values[i]",
             "evaluation/test_statistics.py"),
    # records and runs: one writer, nothing changed unseen, nothing lost at resume
    Mutation("records/lock.py", "lock.acquire(timeout=wait_seconds)", "pass",
             "records/test_lock.py"),
    Mutation("records/manifest.py", "if (now.size, now.xxh3) != (facts.size, facts.xxh3)", "if now.size != facts.size",
             "records/test_manifest.py records/test_run_folder.py"),
    Mutation("records/manifest.py", "if line.id != known.id:", "if False:", "records/test_manifest.py report"),
    Mutation("records/checkpoints.py", "or random_states == expected:", "or random_states:",
             "records/test_checkpoints.py"),
    Mutation("records/resumable.py",
             "if changes := self._changes(identity):", 'if changes := "":', "records/test_resumable.py"),
    Mutation("train/run.py", "on_loaded=drop_later_records if found else None", "on_loaded=None", "train faults"),
    # drivers: translation
    Mutation("integrations/trl/rollouts.py", "further[:, column] = 0.0", "pass",
             "integrations/test_trl_dropin.py integrations/test_trl_trainer.py"),
    Mutation("integrations/trl/trainer.py", "counted = ~batch.columns.isnan().all(1)",
             "counted = ~batch.columns.isnan().any(1)",
             "integrations/test_trl_trainer.py"),
    Mutation("integrations/trl/trainer.py", " * float(self.reward_weights[self._own_column])", "",
             "integrations/test_trl_trainer.py"),
    Mutation("integrations/trl/trainer.py", "else self.shaping.outcome_alone()", "else self.shaping",
             "integrations/test_trl_dropin.py"),
    Mutation("integrations/trl/trainer.py", 'scale = "std" if self._config.scale_rewards == "group" else "none"',
             'scale = "std"', "integrations/test_trl_trainer.py integrations/test_trl_dropin.py"),
    Mutation("integrations/trl/states.py", "with switched, self._trainer.accelerator.autocast():", "with switched:",
             "integrations/test_trl_trainer.py"),
    Mutation("train/resume.py", '"adam_epsilon", "optim")', '"adam_epsilon")', "train/test_run.py"),
    Mutation("integrations/slime/forward.py", "keep = [keep_fractions[i] for i in order]", "keep = [*keep_fractions]",
             "integrations/slime/test_slime_postprocess.py"),
    Mutation("integrations/slime/convert.py", "group = -1 - i", "group = -1", "integrations/slime"),
    Mutation("integrations/slime/convert.py", "() if sample.remove_sample else", "() if sample is None else",
             "integrations/slime"),
    Mutation("integrations/verl/exchange.py", "positions.append(places - 1 +", "positions.append(places +",
             "integrations/verl"),
    Mutation("integrations/verl/exchange.py", "masks[i][start - first_response : end - first_response]",
             "masks[i][: end - start]", "integrations/verl"),
    Mutation("integrations/verl/transfer.py", "scores[-1] = reward", "scores[0] = reward", "integrations/verl"),
    Mutation("integrations/verl/transfer.py", "first + sequence.positions[-1] + 1", "first + sequence.positions[-1]",
             "integrations/verl"),
    # what is read and shown
    Mutation("data/schemas.py", '.strip().replace(",", "") if', ".strip() if",
             "data/test_schemas.py data/test_problems.py"),
    Mutation("report/page.py", "data = data.replace(character, escape)", "pass", "report/test_build.py"),
    Mutation("comparison/result.py", "(cell.seed, canonical_hash(cell.settings))", "(cell.seed, result.settings_hash)",
             "comparison"),
)  # fmt: skip


def main() -> int:
    """Run what is left, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only look for the texts")
    check = parser.parse_args().check
    lost = [f"{m.file}: {m.old!r}" for m in MUTATIONS if (HOME / "src/gar" / m.file).read_text().count(m.old) != 1]
    print(f"{len(lost)} texts are not there once", *lost, sep="\n  ")
    if check or lost:
        return bool(lost)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.touch()
    rows = [json.loads(line) for line in OUT.read_text().splitlines()]
    left = [m for m in MUTATIONS if (m.file, m.old) not in {(row["file"], row["old"]) for row in rows}]
    with tempfile.TemporaryDirectory(prefix="gar-mutations-") as folder:
        tree = Path(folder) / "tree"  # the last commit, so that the checkout itself is never touched
        git = ["git", "-C", HOME, "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", tree, "HEAD"], check=True, timeout=SECONDS)
        try:
            for mutation in left:
                rows.append(mutation._asdict() | run(tree, mutation))
                with OUT.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(f"{rows[-1]['outcome']:9} {mutation.file}: {mutation.old}  [{rows[-1]['by']}]", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=False, timeout=SECONDS)
    print(f"{sum(row['outcome'] == 'killed' for row in rows)} of {len(rows)} killed, {len(MUTATIONS)} planned")
    return 0


def run(tree: Path, mutation: Mutation) -> dict[str, str]:
    """Apply a mutation, run its tests, and take it back. "broken": the tests could not even be collected."""
    path = tree / "src" / "gar" / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    tests = [tree / "tests" / name for name in mutation.tests.split()]
    there = dict.fromkeys(str(test if test.exists() else test.parent) for test in tests)
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    marks = "not slow and not gpu and not browser and not model"
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", marks, *there]
    try:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "killed", "by": f"over {SECONDS} s"}
    finally:
        path.write_text(text, encoding="utf-8")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    outcome = {0: "survived", 1: "killed"}.get(ended.returncode, "broken")
    return {"outcome": outcome, "by": failed[1] if failed else ended.stdout.strip().rpartition("\n")[2]}


if __name__ == "__main__":
    sys.exit(main())
