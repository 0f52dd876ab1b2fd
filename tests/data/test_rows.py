"""Rows and places of every kind of source, and its problems and errors, whole and damaged."""

import gc
import json
import shutil
from pathlib import Path
from typing import cast
from unittest import mock

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv

from gar.data import rows
from gar.data.problems import iter_problems
from gar.data.rows import row_place, source_name
from gar.errors import DataError
from gar.types import Problem
from tests.support.errors import raises


def test_iter_rows_numbers_jsonl_by_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"a": "\xc3\xa4"}\r\n\n   \n{"a": "\xe2\x80\xa8"}'
    )  # a byte order mark, Windows line ends
    assert list(rows.iter_rows(str(path))) == [(1, {"a": "ä"}), (4, {"a": "\u2028"})]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("rows.jsonl", b'{"a": 1}\n{"a": 1,}\n', "rows.jsonl:2: "),
        ("rows.jsonl", b'{"a": 1}\nnull\n', "rows.jsonl:2: "),
        ("rows.jsonl", b'{"a": 1}\n' + b"[" * 100_000, "rows.jsonl:2: "),
        ("rows.jsonl", b'{"a": 1}\n{"a": "b', "cut off"),
        ("rows.jsonl", b'[{"a": 1}, 7]', "rows.jsonl row 2: "),
        ("rows.jsonl", b'[\n  {"a": 1},\n', "cut off"),
        ("rows.jsonl", b'{"a": 1}\n{"a": "caf\xe9"}\n', "position 10"),
        ("rows.csv", b"a,b\n1\n", "rows.csv row 1: "),
        ("rows.csv", b"a,b\n1,2\n1,2,3\n", "rows.csv row 2: "),
        ("rows.csv", b'a,b\n1,"2\n', "rows.csv: "),
        ("rows.csv", b"a,b\n1,caf\xe9\n", "rows.csv: "),
    ],
)
def test_iter_rows_names_file_and_row_of_what_cannot_be_read(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with raises(DataError, None, place):
        list(rows.iter_rows(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.json", '[\n  {"a": "x, \\"y\\"\\nz", "b": "3"},\n  {"a": "", "b": "4"}\n]'),
        ("rows.json", '{"a": "x, \\"y\\"\\nz", "b": "3"}\n{"a": "", "b": "4"}'),  # lines, as many such files hold
        ("rows.jsonl", '[{"a": "x, \\"y\\"\\nz", "b": "3"}, {"a": "", "b": "4"}]'),
        ("rows.csv", '\ufeffa,b\r\n"x, ""y""\nz",3\r\n,4\r\n'),
    ],
)
def test_iter_rows_reads_arrays_and_tables(tmp_path, name, content):
    (tmp_path / name).write_text(content, newline="")
    assert list(rows.iter_rows(str(tmp_path / name))) == [(1, {"a": 'x, "y"\nz', "b": "3"}), (2, {"a": "", "b": "4"})]


def test_iter_rows_rejects_what_is_no_data_set(tmp_path):
    (tmp_path / "rows.jsonl").mkdir()
    (tmp_path / "rows.xlsx").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "anchors.jsonl").touch()
    for name, word in (
        ("rows.jsonl", "rows.jsonl"),
        ("rows.xlsx", "rows.xlsx"),
        ("empty", "empty"),
        ("anchor.jsonl", "/anchors.jsonl'?"),
    ):
        with raises(DataError, None, word):
            list(rows.iter_rows(str(tmp_path / name)))
    with raises(DataError):
        list(rows.iter_rows(""))


def test_iter_rows_numbers_parquet_across_batches_and_reports_damage(tmp_path):
    path = tmp_path / "rows.parquet"
    table = {"a": [f"text {i}" for i in range(1000)], "b": [["x"]] * 1000}
    pq.write_table(pa.table(table), path, row_group_size=300, use_dictionary=False)
    expected = [(number, {"a": f"text {number - 1}", "b": ["x"]}) for number in range(1, 1001)]
    assert list(rows.iter_rows(str(path))) == expected
    offset = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = path.read_bytes()
    for damaged in (content[:-100], content[:offset] + b"\xff" * 40 + content[offset + 40 :]):
        path.write_bytes(damaged)
        with raises(DataError, None, "rows.parquet row "):
            list(rows.iter_rows(str(path)))


def test_iter_rows_streams_a_folder_through_datasets(tmp_path, monkeypatch):
    for split, value in (("train", 1), ("test", 2)):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"a": value}) + "\n")
    assert list(rows.iter_rows(str(tmp_path))) == [(1, {"a": 1})]
    assert list(rows.iter_rows(str(tmp_path), split="test")) == [(1, {"a": 2})]
    with raises(DataError, None, "'tset'", "'train'"):
        list(rows.iter_rows(str(tmp_path), split="tset"))
    (tmp_path / "train-2.jsonl").write_text('{"a": 1}\n{"a": \n')
    with raises(DataError, None, "train-2.jsonl:2: "):
        list(rows.iter_rows(str(tmp_path)))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with raises(DataError):
        list(rows.iter_rows("owner/name"))


def test_iter_rows_passes_split_subset_and_revision_to_datasets_and_never_trusts_code(monkeypatch):
    load = mock.Mock(return_value=datasets.Dataset.from_list([{"a": 1}]).to_iterable_dataset())
    monkeypatch.setattr("datasets.load_dataset", load)
    assert list(rows.iter_rows("owner/name-1.5", split="test", subset="main", revision="abc")) == [(1, {"a": 1})]
    load.assert_called_once_with("owner/name-1.5", name="main", split="test", revision="abc", streaming=True)


def test_names_and_places_of_sources():
    names = {"data/anchors.jsonl": "anchors", "AI-MO/NuminaMath-1.5": "NuminaMath-1.5", "harder": "harder"}
    assert {source: source_name(source) for source in names} == names
    assert (row_place("a.jsonl", 412), row_place("a.parquet", 412)) == ("a.jsonl:412", "a.parquet row 412")


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "_BYTES", 300)
    monkeypatch.setattr(rows, "_ROWS", 7)


def seen_of(path: str) -> list[object]:
    """The problems of a source with its errors, drops and the error that ends it, in order."""
    seen: list[object] = []
    try:
        for problem in iter_problems(
            path, on_error=lambda error: seen.append(str(error)), on_drop=lambda *drop: seen.append(drop)
        ):
            seen.append(problem)
    except DataError as error:
        seen.append(error.args)
    return seen


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_tables")
def test_every_kind_of_source_is_read_to_its_end(tmp_path: Path):
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
    assert {name: len(seen_of(str(tmp_path / name))) for name in sizes} == sizes
    gc.collect()


@pytest.mark.usefixtures("small_tables")
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
    (tmp_path / "b" / "test.parquet").write_bytes(b"junk")  # of another split, which nothing reads
    (tmp_path / "a.csv").write_text("prompt,answer\n" + "".join(f"{name},1\n" for name in names) + '40?,"1')
    (tmp_path / "a").mkdir()
    lines = [json.dumps({"prompt": name, "answer": "1"}) + "\n" for name in names]
    (tmp_path / "a" / "train-0.jsonl").write_text("".join(lines))
    (tmp_path / "a" / "train-1.jsonl").write_text("".join(lines) + "{")
    seen = {name: seen_of(str(tmp_path / name)) for name in ("a.parquet", "a.csv", "a", "b")}
    assert {name: len(each) for name, each in seen.items()} == {"a.parquet": 15, "a.csv": 41, "a": 81, "b": 55}
    assert all("cannot be read" in str(each[-1]) or "train-1.jsonl:41" in str(each[-1]) for each in seen.values())


@pytest.mark.usefixtures("small_tables")
def test_a_row_that_cannot_be_decoded_is_an_error(tmp_path: Path):
    bad = pa.array([b"1?", b"\xff?"] * 9, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"prompt": bad, "answer": ["1"] * 18}), tmp_path / "a.parquet")
    seen = seen_of(str(tmp_path / "a.parquet"))
    assert len(seen) == 18
    assert "a.parquet row 18: a value cannot be read: 'utf-8'" in str(seen[-1])


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_tables")
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
        found = cast("list[tuple[str, Problem]]", seen_of(str(tmp_path / name)))
        assert [problem.answer for _, problem in found] == texts
    found_rows = [row for _, row in rows.iter_rows(str(tmp_path / "pictures"))]
    assert found_rows == [{"prompt": text, "answer": text, "more": [torn | {"notes": [1]}]} for text in texts]
    gc.collect()


@pytest.mark.usefixtures("small_tables")
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
        seen = seen_of(str(path))
        assert len(seen) == num_found + fails
        if fails:
            assert f"row {num_found + 1}: cannot be read as Parquet: the file ends before this row" in str(seen[-1])


README = "---\nconfigs:\n- config_name: default\n  data_files: ['*.parquet', '[ab].parquet']\n---\n"
DECLARED = "---\ndataset_info:\n  features: [{name: prompt, dtype: string}, {name: answer, dtype: int64}]\n---\n"


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
@pytest.mark.usefixtures("small_tables")
def test_files_of_a_folder_of_parquet_may_be_listed_twice_or_differ(tmp_path: Path):
    def answers(readme: str, **files: pa.Table) -> list[object]:
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        (tmp_path / "README.md").write_text(readme)
        for name, table in files.items():
            pq.write_table(table, tmp_path / f"{name}.parquet")
        found = seen_of(str(tmp_path))
        raw = [row.get("answer") for _, row in rows.iter_rows(str(tmp_path))]
        assert len(raw) == len(found)
        return raw

    texts = [str(i) for i in range(20)]
    table = pa.table({"prompt": texts, "answer": texts})
    assert answers(README, a=table, b=table) == 4 * texts
    assert answers(DECLARED, a=table, b=table) == 2 * texts  # as the files have them
    assert answers("", a=table, b=table.select(["prompt"])) == texts + 20 * [None]
    numbers = pa.table({"prompt": texts, "answer": range(20)})
    zeros = pa.table({"prompt": texts, "answer": ["007"] * 20})
    assert answers("", a=numbers, b=zeros) == [*range(20), *["007"] * 20]  # `datasets` alone would make them 7
    gc.collect()


OPTIONS = "---\nconfigs:\n- config_name: default\n  data_files: '*.csv'\n  sep: ';'\n---\n"


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of `datasets`
def test_values_of_a_folder_keep_their_types_and_options_of_its_readme_count(tmp_path: Path):
    for name, sign in (("a", ","), ("b", ";")):
        (tmp_path / f"{name}.csv").write_text(f"prompt{sign}answer\n1?{sign}007\n")
    assert [row for _, row in rows.iter_rows(str(tmp_path))] == [
        {"prompt": "1?", "answer": "007"},
        {"prompt;answer": "1?;007"},
    ]
    (tmp_path / "a.csv").unlink()
    (tmp_path / "README.md").write_text(OPTIONS)
    assert [row for _, row in rows.iter_rows(str(tmp_path))] == [{"prompt": "1?", "answer": 7}]
    gc.collect()
