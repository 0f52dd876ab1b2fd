"""Rows are read by processes on all cores."""

import gc
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv

from gar.data import rows
from gar.data.check import check_problems
from gar.data.prepare import draw_subset
from gar.data.problems import iter_problems, look_at_problems
from gar.data.processes import in_processes
from gar.errors import DataError, GarError
from gar.settings import SourceSettings
from gar.types import Problem
from tests.support.errors import raises
from tests.support.processes import running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no processes")
KINDS = (
    lambda i: {"id": f"p-{i}", "prompt": f"{i}?", "answer": str(i), "expert_solution": f"so {i}"},
    lambda i: {"id": f"p-{i}", "prompt": f"{i}?", "answer": ""},
    lambda i: {"id": f"p-{i}", "prompt": f"{i - 1}?", "answer": str(i), "expert_solution": [f"\\boxed{{{i}}}", "so 3"]},
    lambda i: f'{{"id": "p-{i}", "prompt": ',
    lambda i: {"id": f"p-{i}", "prompt": 3 * [i], "answer": "7", "late": i},
    lambda i: "",
)
HOLD = """
import os, sys, time
from gar.data.processes import in_processes
os.sched_getaffinity = lambda pid: {0, 1}
say = lambda: os.write(1, b"%d\\n" % os.getpid())
say()
list(in_processes(lambda batch: (say(), time.sleep(batch)), [600, 600]))
"""


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


@pytest.fixture
def small_parts(two_cores, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "_BYTES", 300)
    monkeypatch.setattr(rows, "_ROWS", 7)


@pytest.mark.usefixtures("two_cores")
def test_results_come_in_order_from_other_processes(monkeypatch: pytest.MonkeyPatch):
    taken = []
    found = in_processes(lambda batch: (batch, os.getpid()), (taken.append(i) or i for i in range(40)))
    assert next(found)[0] == 0
    assert len(taken) < 5
    others = list(found)
    assert [batch for batch, _ in others] == list(range(1, 40))
    assert os.getpid() not in {pid for _, pid in others}
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # which may have no children
    assert set(in_processes(lambda batch: os.getpid(), range(9))) == {os.getpid()}


@pytest.mark.usefixtures("two_cores")
def test_a_killed_process_is_an_error_and_an_error_is_raised_as_it_was():
    def work(batch: int) -> int:
        if batch == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        if batch == 20:
            raise DataError("row 20")
        return batch

    with raises(GarError, "killed"):
        list(in_processes(work, range(20)))
    with pytest.raises(DataError, match="row 20"):
        list(in_processes(work, range(10, 30)))


def test_processes_end_with_their_parent():
    with running([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        parent, *others = (int(process.stdout.readline()) for _ in range(3))
        assert parent == process.pid
        process.kill()
        assert wait_until(lambda: not any(map(runs, others)))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def read_twice(path: str) -> list[object]:
    """What is seen of a source, by one process and by several, which must be equal."""

    def read(source: Callable[..., Iterator[object]], *look: object) -> list[object]:
        seen: list[object] = []
        note = {"on_error": lambda error: seen.append(str(error)), "on_drop": lambda *drop: seen.append(drop)}
        try:
            for problem in source(path, *look, **note):
                seen.append(problem)
        except DataError as error:
            seen.append(error.args)
        return seen

    expected = read(iter_problems)
    assert read(look_at_problems, lambda problem: problem) == expected
    return expected


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_parts")
def test_every_kind_of_source_is_read_as_by_one_process(tmp_path: Path):
    answers = ["" if i % 9 == 4 else str(i) for i in range(50)]
    texts = [{"prompt": f"{i}?", "answer": answer, "expert_solution": f"so {i}"} for i, answer in enumerate(answers)]
    table = pa.Table.from_pylist(texts)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    codes = table.set_column(1, "answer", table["answer"].dictionary_encode())  # whose batches end with a row group
    pq.write_table(codes, tmp_path / "codes.parquet", row_group_size=20)
    write_csv(table, tmp_path / "a.csv")
    (tmp_path / "a.json").write_text(json.dumps([*texts, 3, {"prompt": [3], "answer": "1"}]))
    for name in ("tables", "mixed"):
        (tmp_path / name).mkdir()
    pq.write_table(table.slice(0, 0), tmp_path / "tables" / "train-.parquet")
    for start in (0, 20):
        pq.write_table(table.slice(start, 20), tmp_path / "tables" / f"train-{start}.parquet")
        # In the first file all answers are numbers, and in the second not.
        lines = [f"{i}?,{i}{' apples' if start else ''}" for i in range(start, start + 20)]
        (tmp_path / "mixed" / f"train-{start}.csv").write_text("\n".join(["prompt,answer", *lines]))
    sizes = {"a.parquet": 50, "codes.parquet": 50, "a.csv": 50, "a.json": 52, "tables": 40, "mixed": 40}
    assert {name: len(read_twice(str(tmp_path / name))) for name in sizes} == sizes
    gc.collect()


@pytest.mark.usefixtures("small_parts")
def test_what_comes_before_damage_is_read(tmp_path: Path):
    names = [f"{i}?" for i in range(40)]
    pq.write_table(pa.table({"prompt": names, "answer": names}), tmp_path / "a.parquet", row_group_size=20)
    whole = (tmp_path / "a.parquet").read_bytes()
    content = bytearray(whole)
    start = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0).data_page_offset
    content[start : start + 30] = b"\xff" * 30
    (tmp_path / "a.parquet").write_bytes(content)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "train-0.parquet").write_bytes(whole)
    (tmp_path / "b" / "train-1.parquet").write_bytes(content)
    (tmp_path / "a.csv").write_text("prompt,answer\n" + "".join(f"{name},1\n" for name in names) + '40?,"1')
    (tmp_path / "a").mkdir()
    lines = [json.dumps({"prompt": name, "answer": "1"}) + "\n" for name in names]
    (tmp_path / "a" / "train-0.jsonl").write_text("".join(lines))
    (tmp_path / "a" / "train-1.jsonl").write_text("".join(lines) + "{")
    seen = {name: read_twice(str(tmp_path / name)) for name in ("a.parquet", "a.csv", "a", "b")}
    assert {name: len(each) for name, each in seen.items()} == {"a.parquet": 15, "a.csv": 41, "a": 41, "b": 55}
    assert all("cannot be read" in str(each[-1]) or "train-1.jsonl:41" in str(each[-1]) for each in seen.values())


@pytest.mark.usefixtures("small_parts")
def test_rows_that_cannot_be_decoded_or_sent_are_an_error(tmp_path: Path):
    bad = pa.array([b"1?", b"\xff?"] * 9, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"prompt": bad, "answer": ["1"] * 18}), tmp_path / "a.parquet")
    seen = read_twice(str(tmp_path / "a.parquet"))
    assert len(seen) == 18
    assert "a.parquet row 18: a value cannot be read: 'utf-8'" in str(seen[-1])
    row = {"prompt": "1?", "answer": "1"}
    deep = json.dumps([row] * 8 + [row | {"deep": "x"}]).replace('"x"', 600 * "[" + 600 * "]")
    (tmp_path / "a.json").write_text(deep)
    assert "a.json: a row is nested too deep." in str(read_twice(str(tmp_path / "a.json"))[-1])


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_parts")
def test_a_folder_may_hold_pictures_that_nothing_reads_and_columns_of_unlike_values(tmp_path: Path):
    texts = [f"{i}" for i in range(18)]
    more = {"picture": datasets.Image(), "notes": datasets.Json()}
    kinds = {"prompt": datasets.Value("string"), "answer": datasets.Value("string"), "more": datasets.List(more)}
    torn = {"picture": {"bytes": b"torn", "path": None}, "notes": "[1]"}
    table = pa.table({"prompt": texts, "answer": texts, "more": [[torn]] * 18})
    (tmp_path / "pictures").mkdir()
    datasets.Dataset(table).cast(datasets.Features(kinds)).to_parquet(tmp_path / "pictures" / "train.parquet")
    unlike = [{"prompt": text, "answer": text if i % 2 else [i]} for i, text in enumerate(texts)]
    for name, content in {"lines.jsonl": "\n".join(map(json.dumps, unlike)), "array.json": json.dumps(unlike)}.items():
        folder = tmp_path / Path(name).stem
        folder.mkdir()
        (folder / name).write_text(content)
    for name in ("pictures", "lines", "array"):
        found = cast("list[tuple[str, Problem]]", read_twice(str(tmp_path / name)))
        assert [problem.answer for _, problem in found] == texts
    found_rows = [row for _, row in rows.iter_rows(str(tmp_path / "pictures"))]
    assert found_rows == [{"prompt": text, "answer": text, "more": [torn | {"notes": [1]}]} for text in texts]
    gc.collect()


@pytest.mark.usefixtures("small_parts")
def test_all_rows_of_a_parquet_file_are_read_though_its_footer_names_another_number(tmp_path: Path):
    path, table = tmp_path / "a.parquet", pa.table({"prompt": ["1?"] * 40, "answer": ["1"] * 40})
    # The rows of a group, a number in the footer (after its type, as twice its size), and what takes its place.
    for rows_per_group, number, other, num_found, fails in (
        (20, b"\x16\x50", b"\x16\x30", 40, False),  # 24 in the file
        (40, b"\x16\x50", b"\x16\x5a", 40, True),  # 45 in the file and in its only group
        (20, b"\x16\x28", b"\x16\x0a", 10, True),  # 5 in each group
    ):
        pq.write_table(table, path, row_group_size=rows_per_group)
        path.write_bytes(path.read_bytes().replace(number, other))
        seen = read_twice(str(path))
        assert len(seen) == num_found + fails
        if fails:
            assert f"row {num_found + 1}: cannot be read as Parquet: the file ends before this row" in str(seen[-1])


README = "---\nconfigs:\n- config_name: default\n  data_files: ['*.parquet', '[ab].parquet']\n---\n"
DECLARED = "---\ndataset_info:\n  features: [{name: prompt, dtype: string}, {name: answer, dtype: int64}]\n---\n"


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_parts")
def test_files_of_a_folder_of_parquet_may_be_listed_twice_or_differ(tmp_path: Path):
    def answers(readme: str, **files: pa.Table) -> list[object]:
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        (tmp_path / "README.md").write_text(readme)
        for name, table in files.items():
            pq.write_table(table, tmp_path / f"{name}.parquet")
        found = read_twice(str(tmp_path))
        raw = [row.get("answer") for _, row in rows.iter_rows(str(tmp_path))]
        assert len(raw) == len(found)
        return raw

    texts = [str(i) for i in range(20)]
    table = pa.table({"prompt": texts, "answer": texts})
    assert answers(README, a=table, b=table) == 4 * texts
    parts = [cast(Any, part) for part in rows.iter_parts(str(tmp_path))]
    some = [part for part in parts if part.path.endswith("a.parquet")]  # as in a process that gets none of the other
    assert [number for part in some for number, _ in part.rows()] == [*range(1, 21), *range(41, 61)]
    rows._readers.clear()
    assert answers(DECLARED, a=table, b=table) == 2 * list(range(20))
    assert answers("", a=table, b=table.select(["prompt"])) == texts + 20 * [None]
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_parts")
def test_a_damaged_file_of_a_folder_of_parquet_is_named_though_an_earlier_one_cannot_be_read_either(tmp_path: Path):
    table = pa.table({"prompt": ["1?"] * 20, "answer": ["1"] * 20})
    for name in ("train-0", "train-1"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    content = bytearray((tmp_path / "train-1.parquet").read_bytes())
    content[4:40] = b"\xff" * 36
    (tmp_path / "train-1.parquet").write_bytes(content)
    (tmp_path / "test.parquet").write_bytes(b"junk")
    seen = read_twice(str(tmp_path))
    assert len(seen) == 21
    assert "train-1.parquet row 1: cannot be read as Parquet" in str(seen[-1])


@pytest.mark.usefixtures("small_parts")
def test_problems_errors_and_drops_are_those_of_one_process(write_rows: Callable[..., str]):
    given = ["torn", *(KINDS[(5 * i + i // 7) % 6](i) for i in range(150))]
    path = write_rows(*given)
    assert len(read_twice(path)) == sum(map(bool, given))
    for use in (iter_problems, partial(look_at_problems, look=str)):
        errors: list[DataError] = []
        found = use(path, options=SourceSettings(expert_fields=("teacher",)), on_error=errors.append)
        with pytest.raises(DataError, match=r"no row has a column 'teacher'.* Found 'id', .*, 'late'"):
            list(found)
        assert str(errors[0]).startswith(f"{path}:1: not valid JSON")


@pytest.mark.usefixtures("small_parts")
def test_a_file_that_changes_its_name_is_read_to_its_end_and_one_that_is_cut_is_an_error(
    write_rows: Callable[..., str],
):
    lines = [KINDS[0](i) for i in range(100)]
    for change in (os.unlink, lambda path: os.truncate(path, 999)):
        path = write_rows(*lines)
        found = look_at_problems(path, lambda problem: problem.id)
        assert next(found)[1] == "p-0"
        change(path)
        if change is os.unlink:
            assert [id for _, id in found] == [f"p-{i}" for i in range(1, 100)]
        else:
            with pytest.raises(DataError, match="became shorter while it was read"):
                list(found)


@pytest.mark.usefixtures("small_parts")
def test_a_subset_and_a_report_are_those_of_one_process(
    write_rows: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    path = write_rows(*(KINDS[2 * (i % 2)](i) for i in range(200)))
    made = []
    for cores in ({0, 1}, {0}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: cores)
        made.append((draw_subset(path, num_problems=20, seed=5), check_problems(path, compare=True)))
    assert made[0] == made[1]
    subset, report = made[0]
    assert subset.dropped == {"repeated prompt": 100}
    assert (report.num_agreeing, len(report.repeated_prompts)) == (201, 100)


@pytest.mark.usefixtures("small_parts")
def test_a_source_without_a_row_that_can_be_read_is_reported_line_by_line(write_rows: Callable[..., str]):
    path = write_rows(*("broken" for _ in range(90)))
    report = check_problems(path)
    assert len(report.errors) == 91
    assert "no rows" in str(report.errors[-1])
