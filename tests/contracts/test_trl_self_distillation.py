"""What we rely on in TRL's experimental trainers of self-distillation: fields, hooks, and who calls them."""

import dataclasses
import inspect

import pytest

from gar.integrations.trl.fields import all_fields, field_types
from gar.integrations.trl.self_distillation import CONFIGS, TRAINERS
from gar.methods import METHODS


@pytest.mark.parametrize("trainer", list(TRAINERS))
def test_fields_and_hooks_are_those_of_the_classes(trainer: str):
    names = {field.name for field in dataclasses.fields(CONFIGS[trainer]) if field.init}
    assert field_types(trainer).keys() == names
    assert names <= set(all_fields())
    assert METHODS[trainer].trl.keys() <= names
    ours, theirs = TRAINERS[trainer].__mro__[1:3]
    hooks = [name for name in vars(ours) if callable(getattr(theirs, name, None)) and name != "__init__"]
    assert hooks == ["_setup_teacher_model", "_generate", "sample_rollouts"]
    for name in hooks:
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(
            inspect.signature(getattr(theirs, name)).parameters
        )
    source = inspect.getsource(theirs)
    for call in ("self._setup_teacher_model()", "self._generate(", "self.sample_rollouts(inputs)"):
        assert source.count(call) == 1
    for used in ("self._get_completion_ids_list(", "self.eos_token_ids", "self._tokenizer", "self._metrics["):
        assert used in source


def test_sdpo_reads_its_rewards_after_its_rollouts():
    source = inspect.getsource(TRAINERS["sdpo"].__mro__[2]._prepare_training_batch)
    assert source.index("self.sample_rollouts(") < source.index("self._calculate_rewards(")
    assert "self.beta" not in inspect.getsource(TRAINERS["sdpo"].__mro__[2]).replace("self.beta = args.beta", "")
