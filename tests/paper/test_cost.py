"""The cost model against hand counts, and against real parameter counts."""

import pytest

from paper.analyses.cost import (
    GroupShape,
    ModelShape,
    forward_operations,
    main,
    model_shape,
    signal_share,
    step_operations,
)

pytestmark = pytest.mark.paper

TINY = ModelShape(body_parameters=1000, layers=2, attention_width=8, hidden=4, vocab=50)


def test_operations_by_hand():
    # 2 * 1000 * 10 through the body, 2 * 8 * 2 layers * 10^2 in causal attention, 2 * 4 * 50 * 3 in the head.
    assert forward_operations(TINY, 10, 3) == 20_000 + 3_200 + 1_200
    group = GroupShape(responses=4, prompt_tokens=2, response_tokens=8, updates=2)
    # A log-prob pass, then two updates of forward, the same again for the activations, and twice as much backward.
    assert step_operations(TINY, group) == 4 * (1 + 2 * 4) * forward_operations(TINY, 10, 8)
    without = group._replace(log_prob_pass=False, checkpointing=False, updates=1)
    assert step_operations(TINY, without) == 4 * 3 * forward_operations(TINY, 10, 8)


def test_signal_share_and_printed_cost_of_qwen3(capsys):
    # Worked out once by hand for K 16, prompt 200, span 768, 40% correct, one anchor of 400, with checkpointing.
    share = signal_share(model_shape("Qwen/Qwen3-8B"), GroupShape(response_tokens=1024), "captured")
    assert 100 * share == pytest.approx(1.45, abs=0.006)
    main(["--model", "Qwen/Qwen3-8B", "--tokens", "8192", "--gpus", "8"])
    printed = capsys.readouterr().out
    assert "Training state: 131 GB" in printed
    assert "without generation: 472 s" in printed
    assert "captured      0.18%  0.867" in printed
