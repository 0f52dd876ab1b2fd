"""The committed results of the bench: `results/signals.parquet` has a row for each policy, similarity and question.

python -m paper.analyses.similarities.committed embedded embedded-grpo embedded-gar     # one table, in Markdown
python -m paper.analyses.similarities.committed --collect runs/signals/embedded         # put a new result in its place
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gar.evaluation import markdown_text

FILE = Path(__file__).parents[3] / "results" / "signals.parquet"
TABLES = ("shares", "equal_lengths")
QUESTIONS = ("equal-wording", "over-wording", "own", "sound", "natural")


def read_benches(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """What the bench wrote into signals.json, by the name of its folder."""
    table = pq.read_table(path)
    benches: dict[str, dict[str, Any]] = json.loads(table.schema.metadata[b"benches"])
    for row in table.to_pylist():
        bench, kind, similarity, question = (row.pop(name) for name in ("bench", "table", "similarity", "question"))
        benches[bench].setdefault(kind, {}).setdefault(similarity, {})[question] = row
    return benches


def write_benches(benches: Mapping[str, Mapping[str, Any]], path: Path = FILE) -> None:
    """Write what `read_benches` reads."""
    rows = [
        {"bench": name, "table": kind, "similarity": similarity, "question": question, **share}
        for name, bench in benches.items()
        for kind in TABLES
        for similarity, shares in bench[kind].items()
        for question, share in shares.items()
    ]
    about = {name: {key: bench[key] for key in bench if key not in TABLES} for name, bench in benches.items()}
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"benches": json.dumps(about)})
    pq.write_table(table, path, compression="zstd", compression_level=19)


def table_of(benches: Sequence[Mapping[str, Any]]) -> str:
    """For each similarity and bench, the smallest share over the kinds of each question, in Markdown."""
    asked = [[q for q in QUESTIONS if any(k.startswith(f"{q}:") for k in bench["shares"]["text"])] for bench in benches]
    headings, rows = ["similarity", *(question for questions in asked for question in questions)], []
    for similarity in benches[0]["shares"]:
        cells = [
            min(share["share"] for kind, share in bench["shares"][similarity].items() if kind.startswith(f"{q}:"))
            for bench, questions in zip(benches, asked, strict=True)
            for q in questions
        ]
        rows.append([similarity, *(f"{cell:.2f}" for cell in cells)])
    return markdown_text({"Smallest share of pairs ranked correctly": pd.DataFrame(rows, columns=headings)}, [])


def main(arguments: list[str] | None = None) -> None:
    """Collect, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="BENCH", help="benches for the columns (default: name them all)")
    parser.add_argument("--collect", type=Path, nargs="+", default=[], metavar="FOLDER", help="folders of the bench")
    options = parser.parse_args(arguments)
    benches = read_benches() if FILE.exists() else {}
    for folder in options.collect:
        benches[folder.name] = json.loads((folder / "signals.json").read_text())
    if options.collect:
        write_benches(dict(sorted(benches.items())))
    unknown = [name for name in options.names if name not in benches]
    if unknown or not options.names:
        parser.exit(2 if unknown else 0, f"benches: {', '.join(sorted(benches))}\n")
    print(table_of([benches[name] for name in options.names]), end="")


if __name__ == "__main__":
    main()
