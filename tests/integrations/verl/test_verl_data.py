"""The Parquet file that verl reads."""

import pyarrow.parquet as pq
import pytest

from gar.errors import ConfigError
from gar.integrations.verl.data import write_verl_problems
from gar.types import Anchor, Problem

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
ANCHORS = (Anchor(text="<think> 3+4 </think>"), Anchor(text="7"))
PROBLEMS = [
    Problem(id="a", prompt="3+4=", answer="7", anchors=ANCHORS, source="s"),
    Problem(id="b", prompt=CHAT, answer="2"),
]


def test_write_verl_problems_has_verls_columns(tmp_path):
    path = tmp_path / "train.parquet"
    write_verl_problems(PROBLEMS, path, template="plain")
    assert pq.read_table(path).to_pylist() == [
        {
            "data_source": "s",
            "prompt": [{"role": "user", "content": "3+4="}],
            "reward_model": {"style": "rule", "ground_truth": "7"},
            "extra_info": {"index": 0, "id": "a", "anchors": ["<think> 3+4 </think>", "7"]},
        },
        {
            "data_source": "",
            "prompt": CHAT,
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"index": 1, "id": "b", "anchors": []},
        },
    ]


def test_write_verl_problems_asks_for_the_format_in_the_last_user_message(tmp_path):
    path = tmp_path / "train.parquet"
    write_verl_problems(PROBLEMS, path, template="boxed")
    prompts = pq.read_table(path)["prompt"].to_pylist()
    assert prompts[0][-1]["content"].startswith("3+4=\n\n")
    assert all(r"\boxed{}" in messages[-1]["content"] for messages in prompts)
    assert prompts[1][0] == CHAT[0]


def test_write_verl_problems_refuses_another_suffix(tmp_path):
    with pytest.raises(ConfigError):
        write_verl_problems(PROBLEMS, tmp_path / "train.jsonl")
