import json
from unittest import mock

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gar.data.rows import iter_rows, row_place, source_name
from gar.errors import DataError
from tests.support.errors import raises


def test_iter_rows_numbers_jsonl_by_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"a": "\xc3\xa4"}\r\n\n   \n{"a": "\xe2\x80\xa8"}'
    )  # a byte order mark, Windows line ends
    assert list(iter_rows(str(path))) == [(1, {"a": "ä"}), (4, {"a": "\u2028"})]


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
        list(iter_rows(str(tmp_path / name)))


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
    assert list(iter_rows(str(tmp_path / name))) == [(1, {"a": 'x, "y"\nz', "b": "3"}), (2, {"a": "", "b": "4"})]


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
            list(iter_rows(str(tmp_path / name)))
    with raises(DataError):
        list(iter_rows(""))


def test_iter_rows_numbers_parquet_across_batches_and_reports_damage(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = {"a": [f"text {i}" for i in range(1000)], "b": [["x"]] * 1000}
    pq.write_table(pa.table(rows), path, row_group_size=300, use_dictionary=False)
    expected = [(number, {"a": f"text {number - 1}", "b": ["x"]}) for number in range(1, 1001)]
    assert list(iter_rows(str(path))) == expected
    offset = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = path.read_bytes()
    for damaged in (content[:-100], content[:offset] + b"\xff" * 40 + content[offset + 40 :]):
        path.write_bytes(damaged)
        with raises(DataError, None, "rows.parquet row "):
            list(iter_rows(str(path)))


def test_iter_rows_streams_a_folder_through_datasets(tmp_path, monkeypatch):
    for split, value in (("train", 1), ("test", 2)):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"a": value}) + "\n")
    assert list(iter_rows(str(tmp_path))) == [(1, {"a": 1})]
    assert list(iter_rows(str(tmp_path), split="test")) == [(1, {"a": 2})]
    with raises(DataError, None, "'tset'", "'train'"):
        list(iter_rows(str(tmp_path), split="tset"))
    (tmp_path / "train-2.jsonl").write_text('{"a": 1}\n{"a": \n')
    with raises(DataError, None, "train-2.jsonl:2: "):
        list(iter_rows(str(tmp_path)))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with raises(DataError):
        list(iter_rows("owner/name"))


def test_iter_rows_passes_split_subset_and_revision_to_datasets_and_never_trusts_code(monkeypatch):
    load = mock.Mock(return_value=datasets.Dataset.from_list([{"a": 1}]).to_iterable_dataset())
    monkeypatch.setattr("datasets.load_dataset", load)
    assert list(iter_rows("owner/name-1.5", split="test", subset="main", revision="abc")) == [(1, {"a": 1})]
    load.assert_called_once_with("owner/name-1.5", name="main", split="test", revision="abc", streaming=True)


def test_names_and_places_of_sources():
    names = {"data/anchors.jsonl": "anchors", "AI-MO/NuminaMath-1.5": "NuminaMath-1.5", "harder": "harder"}
    assert {source: source_name(source) for source in names} == names
    assert (row_place("a.jsonl", 412), row_place("a.parquet", 412)) == ("a.jsonl:412", "a.parquet row 412")
