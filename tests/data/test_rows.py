import contextlib
import json
import re
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

from gar.data.rows import check_hub, iter_rows, row_place, source_name
from gar.errors import DataError


def test_iter_rows_numbers_jsonl_by_line_and_skips_blank_lines(write_rows):
    path = write_rows({"a": 1}, "", "   ", {"a": 2})
    assert list(iter_rows(path)) == [(1, {"a": 1}), (4, {"a": 2})]


def test_iter_rows_reads_a_byte_order_mark_and_windows_line_ends(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": "\xc3\xa4"}\r\n{"a": 2}')
    assert list(iter_rows(str(path))) == [(1, {"a": "ä"}), (2, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": 1,}\n', r"rows.jsonl:2: not valid JSON: .* at column \d+\."),
        (b'{"a": 1}\n[1, 2]\n', r"rows.jsonl:2: expected a JSON object with named columns, got an array\."),
        (b'{"a": 1}\n17\n', r"rows.jsonl:2: expected a JSON object with named columns, got a number\."),
        (b'{"a": 1}\nnull\n', r"rows.jsonl:2: expected a JSON object with named columns, got null\."),
        (b'{"a": 1}\n' + b"[" * 100_000, r"rows.jsonl:2: not readable JSON: nested too deeply\."),
        (b'{"a": 1}\n{"a": "b', r"rows.jsonl:2: not valid JSON: Unterminated .*was the file cut off\?"),
        (b'[{"a": 1}, 7]', r"rows.jsonl row 2: expected a JSON object with named columns, got a number\."),
        (b'[\n  {"a": 1},\n', r"rows.jsonl: cannot be read as one JSON array: .* Was the file cut off\?"),
        (b'{"a": 1}\n{"a": "caf\xe9"}\n', r"rows.jsonl:2: not UTF-8 text \(.* at byte 10 of the line\)"),
    ],
)
def test_iter_rows_names_file_and_line_of_a_bad_line(tmp_path, content, message):
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(iter_rows(str(tmp_path / "rows.jsonl")))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, ""),
        (OSError("no network"), ""),
        (HFValidationError("a name"), "no data set 'a/b': .* the Hub has none"),
        (RepositoryNotFoundError("404", response=mock.Mock()), "the Hub has none"),
    ],
)
def test_check_hub_rejects_what_the_hub_does_not_have_and_nothing_else(monkeypatch, error, said):
    def answer(*arguments: object, **options: object) -> None:
        if error:
            raise error

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", answer)
    with pytest.raises(DataError, match=said) if said else contextlib.nullcontext():
        check_hub("a/b")


def test_check_hub_offline_wants_a_copy(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "prepared"))
    with pytest.raises(DataError, match="HF_HUB_OFFLINE is set, with no copy of it on this machine"):
        check_hub("a/b")
    (tmp_path / "datasets--a--b").mkdir()
    check_hub("a/b")
    (tmp_path / "prepared" / "c___d").mkdir(parents=True)
    check_hub("c/D")


def test_iter_rows_refuses_a_folder_with_the_name_of_a_file_and_a_file_of_no_known_kind(tmp_path):
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(DataError, match=r"rows.jsonl: cannot be read: Is a directory"):
        list(iter_rows(str(tmp_path / "rows.jsonl")))
    (tmp_path / "rows.xlsx").write_text("a,b\n")
    with pytest.raises(DataError, match=r"rows.xlsx: cannot tell what kind of file this is\. Expected \.jsonl"):
        list(iter_rows(str(tmp_path / "rows.xlsx")))


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", r"rows.csv row 1: expected 2 values as in the first line\."),
        (b"a,b\n1,2\n1,2,3\n", r"rows.csv row 2: expected 2 values as in the first line\."),
        (b'a,b\n1,"2\n', r"rows.csv: cannot be read as CSV: unexpected end of data\."),
        (b"a,b\n1,caf\xe9\n", r"rows.csv: cannot be read as CSV: 'utf-8' codec can't decode.* Expected UTF-8 text"),
    ],
)
def test_iter_rows_names_file_and_row_of_a_bad_table(tmp_path, content, message):
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(iter_rows(str(tmp_path / "rows.csv")))


def test_iter_rows_refuses_runs(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "run.json").write_text("{}")
    with pytest.raises(DataError, match=r"a folder of runs, for example one, not a data set\. .* --resume .*/one$"):
        list(iter_rows(str(tmp_path)))
    with pytest.raises(DataError, match=r"/one: a run folder, not a data set\. To resume a run: gar train"):
        list(iter_rows(str(tmp_path / "one")))


def test_iter_rows_refuses_a_folder_of_thousands_of_files(tmp_path):
    (tmp_path / "inner").mkdir()
    for number in range(1001):
        (tmp_path / "inner" / f"{number}.py").touch()
    with pytest.raises(DataError, match=r"more than 1,000 files \(the first of them: 1,001 x \.py\)\. Which of them"):
        list(iter_rows(str(tmp_path)))


@pytest.mark.parametrize("damage", ["cut off", "in the middle"])
def test_iter_rows_reports_damage_of_a_parquet_file(tmp_path, damage):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [f"text {i}" for i in range(2000)]}), path, row_group_size=1000, use_dictionary=False)
    offset = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = path.read_bytes()
    middle = content[:offset] + b"\xff" * 40 + content[offset + 40 :]
    path.write_bytes(content[:-100] if damage == "cut off" else middle)
    with pytest.raises(
        DataError, match=rf"rows.parquet row {1 if damage == 'cut off' else '[0-9]+'}: cannot be read as"
    ):
        list(iter_rows(str(path)))


def test_iter_rows_goes_on_after_a_bad_line_where_errors_are_collected(write_rows):
    errors: list[DataError] = []
    path = write_rows("{", {"a": 2}, "nonsense", {"a": 4})
    assert [number for number, _ in iter_rows(path, on_error=errors.append)] == [2, 4]
    assert [re.search(r":(\d+): ", str(error))[1] for error in errors] == ["1", "3"]


def test_iter_rows_suggests_the_nearest_file(write_rows):
    path = write_rows({"a": 1}, name="anchors.jsonl")
    with pytest.raises(DataError, match=r"anchor.jsonl: no such file\. Did you mean '.*/anchors\.jsonl'\?"):
        list(iter_rows(str(Path(path).with_name("anchor.jsonl"))))
    with pytest.raises(DataError, match="the name of the data source is empty"):
        list(iter_rows(""))


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


def test_iter_rows_names_the_file_of_a_bad_line_in_a_folder(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "1+1="}\n')
    (tmp_path / "b.jsonl").write_text('{"prompt": "1+1="}\n{"prompt": \n')
    with pytest.raises(DataError, match=r"b\.jsonl:2: "):
        list(iter_rows(str(tmp_path)))


def test_iter_rows_names_the_splits_a_folder_has(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"cannot be loaded with split='tset'.*Available splits: \['train'\]"):
        list(iter_rows(str(tmp_path), split="tset"))


def test_iter_rows_refuses_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match="doesn't contain any data files"):
        list(iter_rows(str(tmp_path)))


def test_iter_rows_says_offline_that_the_hub_cannot_be_reached(monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"owner/name: no folder of that name here, and the Hub cannot be reached"):
        list(iter_rows("owner/name"))


def test_iter_rows_passes_split_subset_and_revision_to_datasets_and_never_trusts_code(monkeypatch):
    calls = []

    def load_dataset(path, **kwargs):
        calls.append((path, kwargs))
        return [{"a": 1}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert list(iter_rows("owner/name-1.5", split="test", subset="main", revision="abc")) == [(1, {"a": 1})]
    settings = {"name": "main", "split": "test", "revision": "abc", "streaming": True}
    assert calls == [("owner/name-1.5", settings)]


@pytest.mark.parametrize(
    ("source", "name"),
    [("data/anchors.jsonl", "anchors"), ("AI-MO/NuminaMath-1.5", "NuminaMath-1.5"), ("x/train.parquet", "train")],
)
def test_source_name_keeps_a_version_number(source, name):
    assert source_name(source) == name


def test_row_place_reads_like_a_compiler_message_for_lines_only():
    assert row_place("a.jsonl", 412) == "a.jsonl:412"
    assert row_place("a.parquet", 412) == "a.parquet row 412"
