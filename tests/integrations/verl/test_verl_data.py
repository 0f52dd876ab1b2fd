"""The Parquet file that verl reads."""

import pyarrow.parquet as pq

from gar.errors import ConfigError
from gar.integrations.verl.data import write_verl_problems
from gar.types import Anchor, Problem
from tests.support.errors import raises

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
    write_verl_problems(PROBLEMS, path, template="boxed")  # the format is asked for in the last message
    prompts = pq.read_table(path)["prompt"].to_pylist()
    assert all(r"\boxed{}" in messages[-1]["content"] for messages in prompts)
    assert prompts[1][0] == CHAT[0]
    with raises(ConfigError):
        write_verl_problems(PROBLEMS, tmp_path / "train.jsonl")
