"""The whole package on a real language model with a byte-pair tokenizer: SmolLM2-135M from `scripts/fetch_smollm2.py`.

Skipped unless GAR_TEST_MODEL names its folder.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F

from gar.models.load import load_policy, load_tokenizer
from gar.reader import Reader, encode_prompt
from gar.scoring import GARScorer, ResponseGroup
from gar.settings import ModelSettings, SignalSettings, VerifySettings
from tests.docs.pages import ROOT, outputs_of, shown_commands
from tests.support.autograd import own_means
from tests.support.processes import completed

MODEL = str(Path(os.environ.get("GAR_TEST_MODEL", "smollm2")).absolute())
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not Path(MODEL).is_dir(), reason="GAR_TEST_MODEL does not name the folder that scripts/fetch_smollm2.py writes"
    ),
]

SOLUTIONS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(MODEL)


@pytest.fixture(scope="module")
def reader(tokenizer) -> Reader:
    return Reader.from_settings(tokenizer, SignalSettings(), VerifySettings())


@pytest.mark.data
def test_alignments_of_real_solutions_are_those_of_float64_autograd(data_dir):
    """The model's own loss and head in float64, each sequence alone and unpadded, against batches in float32."""
    lines = (data_dir / "gsm8k_model_solutions_300.jsonl").read_text().splitlines()[:5]
    groups = [
        ResponseGroup(
            prompt=row["question"], responses=[row[name]["solution"] for name in SOLUTIONS],
            anchors=[row["ground_truth"]], eligible=[True] * len(SOLUTIONS),
        )
        for row in map(json.loads, lines)
    ]  # fmt: skip
    model, tokenizer = load_policy(ModelSettings(path=MODEL, dtype="float32"))
    scores = GARScorer(model, tokenizer).score(groups)
    reader = Reader.from_settings(tokenizer, SignalSettings(), VerifySettings(format="none"))
    expected: list[float] = []
    for group in groups:
        prompt = encode_prompt(tokenizer, group.prompt)
        means = own_means(model, [reader.anchor(prompt, text) for text in [*group.responses, *group.anchors]])
        expected += F.cosine_similarity(means[:-1], means[-1:]).tolist()
    assert len(scores) == 20
    # float32 passes of 30 layers against float32 passes without padding: 4e-6 measured.
    assert [score.alignment for score in scores] == pytest.approx(expected, abs=2e-5)


# Byte-pair tokens.

WORKING = "6 * 4 = 24 apples."


@pytest.mark.parametrize("opening", ["", "<|im_start|>assistant\n<think>", "<|im_start|>assistant\n<think>\n"])
@pytest.mark.parametrize("between", ["", "\n", "\n\n", " "])
def test_tags_merged_with_their_neighbors_are_left_out_of_the_span(reader, tokenizer, opening, between):
    """`</think><answer>` is `</`, `think`, `><`, `answer`, `>`: one token ends a tag and begins another."""
    prompt = tokenizer.encode(f"How many?\n{opening}")
    text = f"{'' if opening else '<think>'}{WORKING}</think>{between}<answer>24</answer>.\n"
    ids = tokenizer.encode(text, add_special_tokens=False)
    sequence = reader.read(prompt, [*ids, tokenizer.eos_token_id]).sequence
    assert "".join(reader.pieces(sequence.scored_ids)) == WORKING
    assert reader.text([*ids, tokenizer.eos_token_id]) == text
    assert reader.prefilled(prompt) == bool(opening)


@pytest.mark.slow
def test_the_notebook_of_a_first_day_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAR_MODEL", MODEL)
    outputs = outputs_of(ROOT / "examples" / "first_day.ipynb")
    printed = "".join(line for output in outputs for line in output.get("text", []))
    assert "Usable: 64 problems, 64 with an expert solution." in printed
    assert re.search(r"step 3/3  reward (0\.[1-9]|1)", printed)  # it is sometimes right
    assert "responses, highest alignment first" in printed
    assert len(list(tmp_path.glob("runs/first-day/runs/*/report.html"))) == 1


@pytest.mark.data
@pytest.mark.slow
def test_the_page_of_the_first_real_model_runs_as_written(data_dir, tmp_path, monkeypatch):
    """The commands of the page in order, on twenty real solutions, then the notebook."""
    for name, target in {"examples": ROOT / "examples", "paper": ROOT / "paper", "smollm2": MODEL}.items():
        (tmp_path / name).symlink_to(target)
    solutions = "gsm8k_model_solutions_300.jsonl"
    (tmp_path / solutions).write_text("".join((data_dir / solutions).read_text().splitlines(keepends=True)[:5]))
    commands = [
        command.text for command in shown_commands(ROOT / "docs" / "first-real-model.md")
        if not command.inline and not command.marked and "fetch_smollm2" not in command.text
    ]  # fmt: skip
    assert sum(command.startswith("gar ") for command in commands) >= 5
    for command in commands:
        program, *arguments = shlex.split(command)
        start = [sys.executable, "-m", "gar"] if program == "gar" else [sys.executable]
        done = completed([*start, *arguments], cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    monkeypatch.chdir(tmp_path)
    outputs = outputs_of(ROOT / "examples" / "first_real_model.ipynb")
    num_pictures = sum("image/png" in output.get("data", {}) for output in outputs)
    assert num_pictures == 2
