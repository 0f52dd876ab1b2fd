"""The context of models whose rotary embeddings are stretched."""

import copy
import json

import pytest
from transformers import Qwen3Config

from gar.models.hub import context_before_loading
from gar.models.rope import context_of, stretched_context

YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("length", "rope", "context"),
    [
        (40, None, 40),
        (40, {"rope_type": "default", "rope_theta": 1e4}, 40),
        (10, YARN | {"original_max_position_embeddings": 10}, 40),
        (10, YARN, 40),
        (40, YARN | {"original_max_position_embeddings": 10}, 40),
        (50, YARN | {"original_max_position_embeddings": 10}, 50),
        (10, YARN | {"rope_type": "dynamic"}, 40),
        (10, YARN | {"rope_type": "linear"}, 10),
        (10, YARN | {"rope_type": "linear", "original_max_position_embeddings": 10}, 40),
        (20, YARN | {"rope_type": "llama3", "original_max_position_embeddings": 10, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0}, 20),
    ],
)  # fmt: skip
def test_context_of_a_stretched_model_is_the_factor_times_the_original_length(tmp_path, length, rope, context):
    settings = {"max_position_embeddings": length} | ({"rope_parameters": rope} if rope else {})
    assert context_of(Qwen3Config(**copy.deepcopy(settings))) == context
    layers = {"full_attention": rope or {}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    assert stretched_context(length, layers) == context
    scaling = {"type" if name == "rope_type" else name: value for name, value in (rope or {}).items()}
    for raw in (settings, {"max_position_embeddings": length, "rope_scaling": scaling}, {"text_config": settings}):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"} | raw))
        assert context_before_loading(str(tmp_path)) == context
