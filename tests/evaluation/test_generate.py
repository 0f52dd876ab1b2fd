"""Plans of batches, the engines, and what `generate` asks and keeps."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gar.errors import ConfigError, DataError, ModelError
from gar.evaluation.benchmark_sets import load_sets
from gar.evaluation.engines import TransformersEngine
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.generate import batch_seed, generate, plan_batches
from gar.evaluation.job import GenerateJob
from gar.models.embedded import load_embedded
from gar.response import Response
from gar.settings import ModelSettings
from tests.evaluation.published import ROWS
from tests.support.errors import raises
from tests.support.files import write_jsonl

EMBEDDED = ModelSettings(path="embedded")
JOB = GenerateJob(model=EMBEDDED, benchmark=("arithmetic",))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 16))
def test_plan_batches_holds_every_sample_once_longest_first(lengths, num_samples, batch_size):
    batches = list(plan_batches(lengths, num_samples, batch_size))
    samples = [sample for batch in batches for sample in batch]
    assert sorted(samples) == [(i, sample) for i in range(len(lengths)) for sample in range(num_samples)]
    assert all(1 <= len(batch) <= batch_size for batch in batches)
    found = [lengths[i] for i, _ in samples]
    assert found == sorted(found, reverse=True)
    assert len(batches) == -(-len(samples) // batch_size)  # all but the last are full


def test_batch_seed_differs_by_batch_set_and_seed():
    batches = ([(0, 0), (0, 1)], [(0, 0), (0, 2)], [(1, 0)])
    seeds = {batch_seed(seed, name, batch) for seed in (0, 1) for name in ("a", "b") for batch in batches}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**48 for seed in seeds)


def test_a_file_with_columns_of_its_own_is_read_by_their_names(tmp_path):
    file = write_jsonl(tmp_path / "mine.jsonl", [{"text": "1+1=", "gold": "2", "solution": "1+1=2"}])
    fields = {"prompt_field": "text", "answer_field": "gold"}
    [(problems, _)] = load_sets(JOB.model_copy(update={"benchmark": (str(file),), **fields}))
    assert [(each.prompt, each.answer) for each in problems] == [("1+1=", "2")]
    with raises(ConfigError):
        load_sets(JOB.model_copy(update=fields))


def test_prompts_take_the_arguments_of_the_chat_template(tmp_path, monkeypatch):
    model, tokenizer = load_embedded()
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ '+1=' if short else '*2=' }}"
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    file = write_jsonl(tmp_path / "mine.jsonl", [{"prompt": "7", "answer": "8"}])
    seen: list[str] = []

    def respond(engine, prompt_ids, *_):
        seen.extend(engine.tokenizer.decode(ids) for ids in prompt_ids)
        return [[Response(text="8")] for _ in prompt_ids]

    monkeypatch.setattr(TransformersEngine, "respond", respond)

    def answered(asked: str | None) -> EvaluationFolder:
        job = GenerateJob(
            model=ModelSettings(path=str(tmp_path / "model")), benchmark=(str(file),), samples=1, template="chat",
            max_new_tokens=4, out=tmp_path / f"{asked}", chat_template_kwargs=asked,
        )  # fmt: skip
        (folder,) = generate(job, load_sets(job))
        return folder

    for asked, text in ((None, None), ("{short: true}", '{"short": true}')):
        assert answered(asked).identity()["prompt"]["chat_template_kwargs"] == text
    assert ["".join(each.split()) for each in seen] == ["7*2=", "7+1="]
    for unread in ("{shrt: true}", "{short:true}"):  # YAML reads the second as one name
        with raises(ModelError, "template-argument", "Did you mean 'short'?"):
            answered(unread)
    with raises(ConfigError, None, "expected '{NAME: VALUE}'"):
        GenerateJob(model=EMBEDDED, benchmark=("arithmetic",), chat_template_kwargs="enable_thinking")


def test_a_temperature_that_vllm_would_raise_is_an_error():
    for backend, temperature in (("vllm", 0.0), ("vllm", 0.01), ("transformers", 1e-4)):
        GenerateJob(model=EMBEDDED, benchmark=("arithmetic",), backend=backend, temperature=temperature)
    with pytest.raises(ValueError, match=r"0\.001 to 0\.01"):
        GenerateJob(model=EMBEDDED, benchmark=("arithmetic",), backend="vllm", temperature=1e-3)


def test_load_sets_splits_benchmarks_and_counts_their_samples():
    job = GenerateJob(model=EMBEDDED, benchmark=("arithmetic,arithmetic-harder",))
    assert [each.identity["benchmark"]["name"] for each in load_sets(job)] == ["arithmetic", "arithmetic-harder"]
    assert [job.num_samples(size) for size in (30, 99, 100, 1000, 1319)] == [32, 32, 16, 16, 1]
    for change, error in (
        ({"benchmark": (",",)}, ConfigError),
        ({"benchmark": ("arithmetic", "arithmetic")}, DataError),
        ({"samples": 2}, ConfigError),
    ):
        with raises(error):
            load_sets(JOB.model_copy(update=change), largest_k=3)


def generated(tmp_path, spec: str, **change) -> EvaluationFolder:
    job = GenerateJob(model=EMBEDDED, benchmark=(spec,), samples=2, max_new_tokens=8, out=tmp_path / "out", **change)
    (folder,) = generate(job, load_sets(job))
    return folder


def test_generate_takes_the_papers_form_of_any_named_set(tmp_path):
    folder = generated(tmp_path, f"gpqa-diamond={write_jsonl(tmp_path / 'rows.jsonl', ROWS['gpqa-diamond'][:2])}")
    identity = folder.identity()
    assert identity["prompt"]["template"] == "think-answer"
    assert identity["benchmark"]["notes"][0] == "Its makers ask that its questions be shown nowhere in public."
    assert all("D. " in str(problem.prompt) for problem in folder.problems())
    for sample in folder.lines():
        ended = sample["tokens"][-1] == 1
        assert sample["stop"] == ("end" if ended else "length")
        assert ended or len(sample["tokens"]) == 8


def test_generate_goes_on_from_a_set_that_moved_and_overwrite_begins_anew(tmp_path):
    rows = [{"prompt": f"{number}+1=", "answer": number + 1, "id": str(number)} for number in range(3)]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        spec = write_jsonl(tmp_path / name / "mine.jsonl", rows)
        written = generated(tmp_path, spec, template="plain")
    assert written.identity()["benchmark"]["source"] == str(tmp_path / "one" / "mine.jsonl")
    assert len(list(written.lines())) == 6
    responses = written.path / "responses.jsonl"
    earlier = responses.stat().st_mtime_ns
    generated(tmp_path, spec, template="plain")
    assert responses.stat().st_mtime_ns == earlier  # all are there
    generated(tmp_path, spec, template="plain", overwrite=True)
    assert responses.stat().st_mtime_ns > earlier


def test_a_lack_of_memory_lowers_the_batch_with_a_message_and_a_record(tmp_path: Path, monkeypatch, capsys):
    job = JOB.model_copy(update={"out": tmp_path, "limit": 3, "samples": 3, "max_new_tokens": 8, "batch_size": 6})
    respond, sizes = TransformersEngine.respond, []

    def little_memory(engine, prompts, sampling, progress):
        sizes.append(len(prompts))
        if len(prompts) > 3:
            raise ModelError("too little memory.", code="memory")
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return respond(engine, prompts, sampling, progress)

    monkeypatch.setattr(TransformersEngine, "respond", little_memory)
    with pytest.raises(KeyboardInterrupt):
        generate(job, load_sets(job))
    assert "too little memory. Going on with at most 3" in capsys.readouterr().out
    (folder,) = generate(job, load_sets(job))
    assert sizes == [6, 3, 3, 3, 3]  # what was lowered stays lowered
    lines = list(folder.lines())
    assert len(lines) == 9
    assert {line["lowered_to"] for line in lines} == {3}
    monkeypatch.setattr(
        TransformersEngine, "respond", lambda *_: (_ for _ in ()).throw(ModelError("no", code="memory"))
    )
    with raises(ModelError, "memory"):
        generate(job.model_copy(update={"out": tmp_path / "none"}), load_sets(job))
