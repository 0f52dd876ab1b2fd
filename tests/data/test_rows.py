import contextlib
import json
import re
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

from gar.data.rows import check_hub, iter_rows, row_place, source_name
from gar.errors import DataError
from tests.support.errors import raises


def test_iter_rows_numbers_jsonl_by_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": "\xc3\xa4"}\r\n\n   \n{"a": 2}')  # a byte order mark, Windows line ends
    assert list(iter_rows(str(path))) == [(1, {"a": "ä"}), (4, {"a": 2})]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("rows.jsonl", b'{"a": 1}\n{"a": 1,}\n', r"rows.jsonl:2: .* at column \d+\."),
        ("rows.jsonl", b'{"a": 1}\n[1, 2]\n', "rows.jsonl:2: .* an array"),
        ("rows.jsonl", b'{"a": 1}\nnull\n', "rows.jsonl:2: .* null"),
        ("rows.jsonl", b'{"a": 1}\n' + b"[" * 100_000, "rows.jsonl:2: "),
        ("rows.jsonl", b'{"a": 1}\n{"a": "b', "rows.jsonl:2: .* cut off"),
        ("rows.jsonl", b'[{"a": 1}, 7]', "rows.jsonl row 2: .* a number"),
        ("rows.jsonl", b'[\n  {"a": 1},\n', "rows.jsonl: .* cut off"),
        ("rows.jsonl", b'{"a": 1}\n{"a": "caf\xe9"}\n', "rows.jsonl:2: .* at byte 10 of the line"),
        ("rows.csv", b"a,b\n1\n", "rows.csv row 1: expected 2 values"),
        ("rows.csv", b"a,b\n1,2\n1,2,3\n", "rows.csv row 2: expected 2 values"),
        ("rows.csv", b'a,b\n1,"2\n', "rows.csv: .* unexpected end of data"),
        ("rows.csv", b"a,b\n1,caf\xe9\n", "rows.csv: .* 'utf-8' codec"),
    ],
)
def test_iter_rows_names_file_and_row_of_what_cannot_be_read(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=place):
        list(iter_rows(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("error", "rejected"),
    [
        (None, False),
        (OSError("no network"), False),
        (HFValidationError("a name"), True),
        (RepositoryNotFoundError("404", response=mock.Mock()), True),
    ],
)
def test_check_hub_rejects_what_the_hub_does_not_have_and_nothing_else(monkeypatch, error, rejected):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", mock.Mock(side_effect=error))
    with raises(DataError) if rejected else contextlib.nullcontext():
        check_hub("a/b")


def test_check_hub_offline_wants_a_copy(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "prepared"))
    with raises(DataError):
        check_hub("a/b")
    (tmp_path / "datasets--a--b").mkdir()
    check_hub("a/b")
    (tmp_path / "prepared" / "c___d").mkdir(parents=True)
    check_hub("c/D")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.json", '[\n  {"a": "x, \\"y\\"\\nz", "b": "3"},\n  {"a": "", "b": "4"}\n]'),
        ("rows.json", '{"a": "x, \\"y\\"\\nz", "b": "3"}\n{"a": "", "b": "4"}'),  # lines, as many such files hold
        ("rows.jsonl", '[{"a": "x, \\"y\\"\\nz", "b": "3"}, {"a": "", "b": "4"}]'),
        ("rows.csv", '\ufeffa,b\r\n"x, ""y""\nz",3\r\n,4\r\n'),
        ("rows.tsv", 'a\tb\n"x, ""y""\nz"\t3\n\t4\n'),
    ],
)
def test_iter_rows_reads_arrays_and_tables(tmp_path, name, content):
    (tmp_path / name).write_text(content, newline="")
    assert list(iter_rows(str(tmp_path / name))) == [(1, {"a": 'x, "y"\nz', "b": "3"}), (2, {"a": "", "b": "4"})]


def test_iter_rows_rejects_what_is_no_data_set(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "run.json").write_text("{}")
    (tmp_path / "rows.jsonl").mkdir()
    (tmp_path / "rows.xlsx").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "many" / "inner").mkdir(parents=True)
    for number in range(1001):
        (tmp_path / "many" / "inner" / f"{number}.json").touch()
    (tmp_path / "anchors.jsonl").touch()
    for name, words in (
        ("runs", "--resume .*/one$"),
        ("runs/one", "--resume .*/one$"),
        ("rows.jsonl", "Is a directory"),
        ("rows.xlsx", "what kind of file"),
        ("empty", "empty"),
        ("many", "more than 1,000 files"),
        ("anchor.jsonl", r"no such file\. Did you mean '.*/anchors\.jsonl'\?"),
    ):
        with pytest.raises(DataError, match=words):
            list(iter_rows(str(tmp_path / name)))
    with raises(DataError):
        list(iter_rows(""))


@pytest.mark.parametrize("damage", ["cut off", "in the middle"])
def test_iter_rows_reports_damage_of_a_parquet_file(tmp_path, damage):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [f"text {i}" for i in range(2000)]}), path, row_group_size=1000, use_dictionary=False)
    offset = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = path.read_bytes()
    middle = content[:offset] + b"\xff" * 40 + content[offset + 40 :]
    path.write_bytes(content[:-100] if damage == "cut off" else middle)
    with pytest.raises(DataError, match=rf"rows.parquet row {1 if damage == 'cut off' else '[0-9]+'}: "):
        list(iter_rows(str(path)))


def test_iter_rows_goes_on_after_a_bad_line_where_errors_are_collected(write_rows):
    errors: list[DataError] = []
    path = write_rows("{", {"a": 2}, "nonsense", {"a": 4})
    assert [number for number, _ in iter_rows(path, on_error=errors.append)] == [2, 4]
    assert [re.search(r":(\d+): ", str(error))[1] for error in errors] == ["1", "3"]


def test_iter_rows_numbers_parquet_across_batches(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": list(range(1000)), "b": [["x"]] * 1000}), path, row_group_size=300)
    rows = list(iter_rows(str(path)))
    assert rows == [(number, {"a": number - 1, "b": ["x"]}) for number in range(1, 1001)]


def test_iter_rows_streams_a_folder_through_datasets(tmp_path):
    for split, value in (("train", 1), ("test", 2)):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"a": value}) + "\n")
    assert list(iter_rows(str(tmp_path))) == [(1, {"a": 1})]
    assert list(iter_rows(str(tmp_path), split="test")) == [(1, {"a": 2})]
    with pytest.raises(DataError, match=r"split='tset'.*'train'"):
        list(iter_rows(str(tmp_path), split="tset"))
    (tmp_path / "train-2.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"train-2\.jsonl:2: "):
        list(iter_rows(str(tmp_path)))


def test_iter_rows_says_offline_that_the_hub_cannot_be_reached(monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with raises(DataError):
        list(iter_rows("owner/name"))


def test_iter_rows_passes_split_subset_and_revision_to_datasets_and_never_trusts_code(monkeypatch):
    load = mock.Mock(return_value=[{"a": 1}])
    monkeypatch.setattr("datasets.load_dataset", load)
    assert list(iter_rows("owner/name-1.5", split="test", subset="main", revision="abc")) == [(1, {"a": 1})]
    load.assert_called_once_with("owner/name-1.5", name="main", split="test", revision="abc", streaming=True)


def test_names_and_places_of_sources():
    names = {"data/anchors.jsonl": "anchors", "AI-MO/NuminaMath-1.5": "NuminaMath-1.5", "harder": "harder"}
    assert {source: source_name(source) for source in names} == names
    assert (row_place("a.jsonl", 412), row_place("a.parquet", 412)) == ("a.jsonl:412", "a.parquet row 412")
