"""What gradient-activation vectors reject, with the name of the argument."""

import math

import pytest
import torch

from gar.core import gradient_activation_means

pytestmark = pytest.mark.usefixtures("unchecked")


REJECTED = [
    {"hidden": torch.ones(2, 3, 4)},
    {"lm_head_weight": torch.ones(4, 5)},
    {"bias": torch.ones(1)},
    {"target_ids": torch.tensor([0, 1])},
    {"target_ids": torch.zeros(3, 1).long()},
    {"target_ids": torch.tensor([0, 5, 2])},
    {"target_ids": torch.tensor([-100, 1, 2])},
    {"response_index": torch.zeros(4).long()},
    {"response_index": torch.tensor([0, -1, 1])},
    {"response_index": torch.tensor([0, 2, 1])},
    {"signal": "gradient_activation"},
    {"temperature": 0.0},
    {"temperature": math.nan},
    {"logit_scale": 0.0},
    {"logit_softcap": 0.0},
    {"activation_threshold": 1.5},
    {"activation_threshold": -0.1},
    {"keep_fraction": 0.0},
    {"keep_fraction": torch.tensor([0.5, 1.5])},
    {"keep_fraction": math.nan},
    {"keep_fraction": torch.tensor([0.5, 0.5, 0.5])},
    {"chunk_tokens": 0},
    {"precision": "bfloat16"},
    {"memory_bytes": 100},
    {"lm_head_weight": torch.ones(5, 4, device="meta")},
]


def test_gradient_activation_means_reject():
    arguments = {
        "hidden": torch.ones(3, 4),
        "lm_head_weight": torch.ones(5, 4),
        "target_ids": torch.tensor([0, 1, 2]),
        "response_index": torch.tensor([0, 1, 1]),
        "num_responses": 2,
    }
    gradient_activation_means(**arguments)
    for changes in REJECTED:
        (name,) = changes
        with pytest.raises(ValueError, match=name):
            gradient_activation_means(**arguments | changes)
