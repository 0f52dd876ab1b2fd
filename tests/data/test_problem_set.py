"""Problems as a data set, and the lengths of their prompts."""

import hashlib
import json
import pickle
import tempfile

import numpy as np
import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from gar.data import problem_set
from gar.data.lengths import bytes_around, fitting, prompt_lengths
from gar.data.problem_set import FEATURES, ProblemSet, load_problems, problem_file, read_problems
from gar.data.problems import iter_problems, may_repeat
from gar.data.prompts import Renderer
from gar.errors import DataError, RecordError
from gar.models import load_embedded
from gar.reader import Reader, SpanRule
from gar.settings import SignalSettings
from gar.types import Anchor, Problem
from tests.support.errors import raises
from tests.support.files import full_disk

PLAIN = Renderer(template="plain", chat=False)
TALK = [{"role": "user", "content": "3+4="}, {"role": "assistant", "content": ""}]


def row(number: int, **changes: object) -> dict[str, object]:
    return {"id": f"p-{number}", "prompt": f"{number}+1=", "answer": "7", "expert_solution": "so é"} | changes


def byte_tokenizer(*, nfc: bool = True, template: str | None = None) -> PreTrainedTokenizerFast:
    """One token a byte, and a special one before the text."""
    alphabet = {sign: i for i, sign in enumerate(["<s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.normalizer = normalizers.NFC() if nfc else normalizers.Lowercase()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<s>")
    made.chat_template = template
    return made


def reader_of(tokenizer) -> Reader:
    rule = SpanRule.from_settings(SignalSettings(), None, tokenizer)
    return Reader(tokenizer, rule)


def test_a_set_gives_the_problems_that_its_source_has(write_rows, monkeypatch: pytest.MonkeyPatch):
    rows = [
        row(0), row(1, expert_solution=None), row(2, prompt=TALK), row(3, expert_solution=["a", "b"]),
        row(4, answer=1.5, source="x"),
    ]  # fmt: skip
    source = write_rows(*rows)
    expected = [problem for _, problem in iter_problems(source)]
    monkeypatch.setattr(problem_set, "_BATCH", 2)
    found = load_problems(source)
    assert list(found) == expected
    assert [found[i] for i in range(-5, 5)] == 2 * expected
    assert found[1:3] == expected[1:3]
    assert found.anchored.tolist() == [True, False, True, True, True]
    assert found.with_messages == "p-2"
    some = found.chosen(np.array([1, 2, 4]))
    assert list(some) == [expected[i] for i in (1, 2, 4)]
    assert some[-1] == expected[4]
    assert some.anchored.tolist() == [False, True, True]
    assert some.with_messages == "p-2"
    assert list(some.chosen(np.array([0, 2]))) == [expected[1], expected[4]]
    shown = some.rendered(Renderer(template="boxed", chat=True, all_messages=True))
    assert shown[0].prompt[0]["content"].endswith("boxed{}.")
    assert shown[0].question == "1+1="
    with pytest.raises(IndexError):
        found[5]


def test_its_rows_are_a_data_set_in_our_columns(write_rows):
    found = load_problems(write_rows(row(0), row(1, prompt=TALK, expert_solution=None)))
    assert isinstance(found.rows, Dataset)
    assert found.rows.features == FEATURES
    assert list(ProblemSet.of(found.rows)) == list(found)
    assert list(ProblemSet.of(list(found)).rendered(None)) == list(found)


def test_problems_of_python_users_stay_as_they_are():
    given = [
        Problem(id="a", prompt=" 3+4=\n", answer=" 7 ", anchors=(Anchor(text=" so\n"), Anchor(text=""))),
        Problem(id="b", prompt="?", answer="", source="s", choices=("1", "2"), question="Which?"),
    ]
    assert list(ProblemSet.of(given)) == given
    assert list(ProblemSet.of(given).chosen(np.array([1]))) == given[1:]


def test_another_process_opens_the_file_which_is_gone_for_later_ones(write_rows, tmp_path):
    with problem_file(tmp_path) as file:
        held = pickle.dumps(read_problems(write_rows(row(0), row(1), name="a.jsonl"), file))
        found, other = pickle.loads(held).open(), pickle.loads(held).open()
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".gar-problems-")]
    assert list(other) == list(found)
    assert other.data_hash == found.data_hash
    with pytest.raises(RecordError, match="No such file"):
        pickle.loads(held).open()


def test_a_file_for_one_process_has_no_name(write_rows, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    with problem_file() as file:
        stored = read_problems(write_rows(row(0)), file)
        assert list((tmp_path / "files").iterdir()) == []
    assert stored.data_hash == load_problems(write_rows(row(0))).data_hash


def test_a_changed_file_is_read_anew(write_rows):
    hashes, read = [], []
    for answer in ("7", "8", "7"):
        found = load_problems(write_rows(row(0, answer=answer)))
        hashes.append(found.data_hash)
        read.append(found[0].answer)
    assert read == ["7", "8", "7"]
    assert hashes[0] == hashes[2] != hashes[1]


def test_the_hash_does_not_depend_on_batches_and_changes_with_any_text(write_rows, monkeypatch: pytest.MonkeyPatch):
    rows = [row(0), row(1, prompt=TALK), row(2, expert_solution=["", "b"]), row(3, expert_solution=None)]
    whole = load_problems(write_rows(*rows)).data_hash
    for size in (1, 2, 3):
        monkeypatch.setattr(problem_set, "_BATCH", size)
        assert load_problems(write_rows(*rows)).data_hash == whole
    changed = [
        [row(0, prompt="0+1=0"), *rows[1:]],
        [row(0), row(1, prompt=TALK[:1]), *rows[2:]],
        [*rows[:2], row(2, expert_solution=["", "b", "b"]), rows[3]],
        [*rows[:3], row(3, expert_solution="")],
        rows[:3],
    ]
    hashes = [load_problems(write_rows(*each)).data_hash for each in changed]
    assert hashes[3] == whole  # no anchor either way
    assert len({whole, *hashes}) == 5


def test_the_hash_is_that_of_the_rows_as_json_lines(write_rows):
    found = load_problems(write_rows(row(0), row(1, prompt=TALK)))
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) + "\n" for each in found.rows]
    assert found.data_hash == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_hash_of_the_demo_never_changes():
    whole = "5b7b7cd59974"  # committed results of comparisons have it
    assert load_problems("arithmetic").data_hash.startswith(whole)


def test_a_failure_leaves_no_file(write_rows, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    source = write_rows(row(0), row(1), row(2, id="p-0"))
    with (
        pytest.raises(DataError, match=r":3: the problem id 'p-0' was already used at .*:1"),
        problem_file(folder) as file,
    ):
        read_problems(source, file)
    with raises(DataError), problem_file(folder) as file:
        read_problems(write_rows(row(0, answer="")), file)
    large = write_rows(*(row(i, prompt="x" * 500) for i in range(1000)))
    with raises(RecordError), full_disk(), problem_file(folder) as file:  # it is full when the file is closed, too
        read_problems(large, file)
    assert list(folder.iterdir()) == []
    with raises(RecordError), problem_file(tmp_path / "nowhere"):
        pass


TEMPLATES = {
    "plain": None,
    "chat": "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}ok{% endif %}",
    "twice": "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
}


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("nfc", [True, False])
def test_prompts_are_encoded_only_if_they_may_be_too_long(write_rows, monkeypatch, kind: str, nfc: bool):
    tokenizer = byte_tokenizer(nfc=nfc, template=TEMPLATES[kind])
    reader = reader_of(tokenizer)
    # U+0958 becomes two characters and six bytes under NFC
    table = load_problems(
        write_rows(*(row(i, prompt=text) for i, text in enumerate(("a" * 9, "b" * 40, "\u0958" * 4, "é"))))
    )
    render = PLAIN if kind == "plain" else Renderer(template="boxed", chat=True)
    exact = [len(reader.encode(problem.prompt)) for problem in table.rendered(render)]
    encoded: list[object] = []
    encode = reader.encode_all
    monkeypatch.setattr(reader, "encode_all", lambda some: (encoded.extend(some), encode(some))[1])
    for enough in range(0, 2 * max(exact), 3):
        encoded.clear()
        lengths = prompt_lengths(table, render, reader, enough=enough)
        for length, true in zip(lengths, exact, strict=True):
            assert length == true or true <= length <= enough
        if not nfc or kind == "twice":
            assert len(encoded) == 4
    assert (len(encoded) < 4) == (nfc and kind != "twice")


def test_what_is_known_of_lengths_depends_on_what_a_tokenizer_adds_to_a_text():
    tokenizer = byte_tokenizer()
    assert bytes_around(reader_of(load_embedded()[1]), PLAIN.prompt) == 1
    for adding, most in ((pre_tokenizers.Metaspace(), None), (pre_tokenizers.Whitespace(), 2)):
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), adding])
        assert bytes_around(reader_of(tokenizer), PLAIN.prompt) == most


def test_prompts_over_the_limit_are_left_out(write_rows):
    reader = reader_of(byte_tokenizer())
    table = load_problems(write_rows(*(row(i, prompt="w" * length) for i, length in enumerate((3, 5, 4, 9)))))
    lengths = prompt_lengths(table, PLAIN, reader, enough=0)
    assert lengths.tolist() == [5, 7, 6, 11]  # a space and a special token before the text
    assert fitting(lengths, 6).tolist() == [0, 2]
    with pytest.raises(DataError, match="the shortest of 4 has 5, the median 6"):
        fitting(lengths, 4)


def test_ids_that_repeat_are_never_missed_and_others_rarely_suspected():
    names = [f"p-{i}" for i in range(3000)] + ["", "é", "p", "0" * 300, "1" * 300]
    assert not may_repeat(names)
    assert all(may_repeat([*names, name]) for name in names[::500] + names[-5:])
