"""How much do the tests notice? Sixty faults (mutations.tsv) are put into src/gar, one at a time, for tests to find.

    python tests/mutations.py            # all in a copy of the last commit: about 40 minutes. A repeated call continues
    python tests/mutations.py --only core/vectors.py    # those of one file or folder, again
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


MUTATIONS = [
    Mutation(*line.split("\t"))
    for line in Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def main() -> int:
    """Run what is left, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only look for the texts")
    parser.add_argument("--only", metavar="PATH", help="a file or folder below src/gar")
    options = parser.parse_args()
    lost = [f"{m.file}: {m.old!r}" for m in MUTATIONS if (HOME / "src/gar" / m.file).read_text().count(m.old) != 1]
    print(f"{len(lost)} texts are not there once", *lost, sep="\n  ")
    if options.check or lost:
        return bool(lost)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.touch()
    rows = [json.loads(line) for line in OUT.read_text().splitlines()]
    if options.only:
        rows = [row for row in rows if not row["file"].startswith(options.only)]
        OUT.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = {(row["file"], row["old"]) for row in rows}
    left = [m for m in MUTATIONS if (m.file, m.old) not in done and m.file.startswith(options.only or "")]
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
