"""What gradient-activation vectors reject, in the words a user reads."""

import math
import re

import pytest
import torch

from gar.core import gradient_activation_means

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"hidden": torch.ones(2, 3, 4)},
            "hidden must have shape [tokens, hidden], got (2, 3, 4). Flatten the scored tokens of all responses into "
            "one list.",
        ),
        (
            {"lm_head_weight": torch.ones(4, 5)},
            "hidden and lm_head_weight must agree in their last dimension, got 4 and 5. Is the weight transposed?",
        ),
        ({"bias": torch.ones(1)}, "bias must have one entry per row of the head, expected 5, got (1,)"),
        ({"target_ids": torch.tensor([0, 1])}, "target_ids must have one entry per token, expected 3, got (2,)"),
        ({"target_ids": torch.zeros(3, 1).long()}, "target_ids must have one entry per token, expected 3, got (3, 1)"),
        ({"response_index": torch.zeros(4).long()}, "response_index must have one entry per token, expected 3"),
        (
            {"target_ids": torch.tensor([0, 5, 2])},
            "target_ids must lie in [0, 5), got 0 to 5. Do the tokenizer and the model belong together?",
        ),
        ({"target_ids": torch.tensor([-100, 1, 2])}, "target_ids must lie in [0, 5), got -100 to 2."),
        (
            {"response_index": torch.tensor([0, -1, 1])},
            "response_index must lie in [0, 2), got -1 to 1. Did a padding token keep its -1?",
        ),
        ({"response_index": torch.tensor([0, 2, 1])}, "response_index must lie in [0, 2), got 0 to 2."),
        (
            {"signal": "gradient_activation"},
            "signal must be one of gradient-activation, gradient, hidden, got 'gradient_activation'",
        ),
        ({"temperature": 0.0}, "temperature must be positive, got 0.0"),
        ({"temperature": math.nan}, "temperature must be positive, got nan"),
        ({"logit_scale": 0.0}, "logit_scale must be positive, got 0.0"),
        ({"logit_softcap": 0.0}, "logit_softcap must be positive or None, got 0.0"),
        ({"activation_threshold": 1.5}, "activation_threshold must be in [0, 1], got 1.5"),
        ({"activation_threshold": -0.1}, "activation_threshold must be in [0, 1], got -0.1"),
        ({"keep_fraction": 0.0}, "keep_fraction must be in (0, 1], got 0.0"),
        ({"keep_fraction": torch.tensor([0.5, 1.5])}, "keep_fraction must be in (0, 1], got [0.5, 1.5]"),
        ({"keep_fraction": math.nan}, "keep_fraction must be in (0, 1], got nan"),
        (
            {"keep_fraction": torch.tensor([0.5, 0.5, 0.5])},
            "keep_fraction must be one number or one per response, expected 2, got (3,)",
        ),
        ({"chunk_tokens": 0}, "chunk_tokens must be at least 1 or None, got 0"),
        ({"precision": "bfloat16"}, "precision must be one of auto, float32, storage, got 'bfloat16'"),
        (
            {"memory_bytes": 100},
            "memory_bytes must be at least 148 for one token of width 4 and 5 rows of the head, got 100",
        ),
        (
            {"lm_head_weight": torch.ones(5, 4, device="meta")},
            "all arguments must be on one device, got hidden on cpu, lm_head_weight on meta, target_ids on cpu",
        ),
    ],
)
def test_gradient_activation_means_refuse(changes, message):
    arguments = {
        "hidden": torch.ones(3, 4),
        "lm_head_weight": torch.ones(5, 4),
        "target_ids": torch.tensor([0, 1, 2]),
        "response_index": torch.tensor([0, 1, 1]),
        "num_responses": 2,
    }
    gradient_activation_means(**arguments)
    with pytest.raises(ValueError, match=re.escape(message)):
        gradient_activation_means(**arguments | changes)
