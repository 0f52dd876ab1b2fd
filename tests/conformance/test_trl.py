"""The seven groups through GARTrainer on TRL, for one step with given responses."""

from typing import Any

import pytest
import trl

from gar.integrations.trl.trainer import GARTrainer
from gar.models.embedded import load_embedded
from gar.records import RolloutRecord
from gar.verify import Verifier
from tests.conformance.expectation import check_engine
from tests.conformance.groups import GROUP_SIZE, make_problems, make_rollouts
from tests.integrations.conftest import SMALL


def replay(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """A rollout function of TRL that answers each prompt with the responses of its group, in turn."""
    groups = trainer._batch.group_index
    places = [GROUP_SIZE * group + groups[:i].count(group) for i, group in enumerate(groups)]
    answers = [make_rollouts()[place].sequence for place in places]
    assert trainer._tokenize_prompts(prompts)[0] == [answer.context_ids for answer in answers]
    return {
        "prompt_ids": [list(answer.context_ids) for answer in answers],
        "completion_ids": [list(answer.ids) for answer in answers],
        "logprobs": None,
        "env_mask": [answer.mask or [1] * len(answer.ids) for answer in answers],
    }


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[RolloutRecord]:
    """In the order of `make_rollouts`."""
    model, tokenizer = load_embedded()
    size = {"per_device_train_batch_size": len(make_rollouts()), "num_generations": GROUP_SIZE}
    folder = tmp_path_factory.mktemp("conformance")
    found: list[RolloutRecord] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout functions are
        GARTrainer(
            model, train_dataset=make_problems(), verifier=Verifier(num_workers=1), processing_class=tokenizer,
            args=trl.GRPOConfig(output_dir=str(folder), **(SMALL | size)),
            on_rollouts=lambda _, rows: found.extend(rows), rollout_func=replay,
        ).train()  # fmt: skip
    return sorted(found, key=lambda row: (row.group_index, row.response_index))


def test_trl_gives_the_expected_rewards_and_advantages(records):
    check_engine(
        "trl",
        version=trl.__version__,
        rewards=[row.reward for row in records],
        advantages=[row.advantage for row in records],
    )


def test_trl_verifies_and_scores_what_the_groups_say(records):
    for row, rollout in zip(records, make_rollouts(), strict=True):
        assert (row.verified, row.well_formatted) == (rollout.verified, rollout.well_formatted)
        assert row.response == rollout.text
        if rollout.well_formatted:  # a response without its opening tag is scored as a whole, where a method scores it
            assert row.num_scored_tokens == len(rollout.sequence.positions)
