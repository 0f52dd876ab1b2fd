"""What does not go together under TRL, and what makes a resumed run differ from an uninterrupted one."""

from dataclasses import dataclass

from gar.methods.rules import ALL_CORRECT, IN_GROUPS, WHITENED, EngineFacts, Flags
from gar.rules import OFF, Condition, Rule, When, bounds, setting


@dataclass(frozen=True, kw_only=True)
class TrlFlags(Flags):
    """A `trl.GRPOConfig`, its fields as "trl.FIELD"."""

    on_policy: bool
    """Each generation of rollouts has one update."""
    accelerator: bool
    """This machine has one."""
    corrects_filtered_sampling: bool
    """TRL corrects the probabilities of vLLM's samples, which were drawn from filtered ones."""


TrlFacts = EngineFacts[TrlFlags]

_GATE = When[TrlFacts]("`method.gate` is True", lambda facts: facts.method.gate is not None)
_OWN_ADVANTAGES = When[TrlFacts]("`advantages are TRL's` is False", lambda facts: facts.own_advantages)
_CORRECTS = When[TrlFacts](
    "`trl.use_vllm corrects filtered sampling` is True", lambda facts: facts.flags.corrects_filtered_sampling
)
_NO_ACCELERATOR = When[TrlFacts]("`accelerator` is False", lambda facts: not facts.flags.accelerator)
_REPEATS = Condition[TrlFacts]("two or more", lambda facts, _: not facts.flags.on_policy)

RULES = (
    Rule("trl.multi_objective_aggregation", ("sum_then_normalize",), "the bonus belongs to the normalized reward"),
    Rule("trl.remove_unused_columns", (False,), "the columns answer and expert_solution would be dropped"),
    Rule("trl.dynamic_sampling", OFF, ALL_CORRECT),
    Rule(
        "trl.scale_rewards",
        ("group", "none"),
        "advantage.ddof and eps need one. Or leave them null",
        (IN_GROUPS, _OWN_ADVANTAGES),
    ),
    Rule("trl.scale_rewards", ("group",), "with {estimator} nothing would read it", (WHITENED,)),
    Rule("trl.importance_sampling_level", ("token",), "the method weighs the ratio of each token by itself", (_GATE,)),
    Rule("trl.delta", (None,), "it clips ratios, and the method has a soft gate instead", (_GATE,)),
    Rule("updates_per_rollout", _REPEATS, "with one, every ratio is 1. Set trl.num_iterations to 2", (_GATE,)),
    Rule(
        "trl.vllm_importance_sampling_mode",
        ("token_truncate", "token_mask"),
        "with top_p, top_k, min_p or repetition_penalty a response's ratio to vLLM's probabilities is a product over "
        "its tokens, which shrinks with its length and takes the gradient with it. Or sample without them",
        (_CORRECTS,),
    ),
    Rule("trl.temperature", bounds(">= 0.01"), "vLLM raises a lower one to 0.01", (setting("trl.use_vllm", True),)),
    Rule("trl.fp16", OFF, "it needs an accelerator, and this machine has none", (_NO_ACCELERATOR,)),
)

RESUME_RULES = (
    Rule(
        "trl.save_only_model",
        (False,),
        "a checkpoint without the optimizer cannot be resumed",
        (setting("trl.save_strategy", "steps", "epoch", "best"),),
    ),
    Rule("trl.sync_ref_model", OFF, "the reference model that it moves is in no checkpoint"),
    Rule("trl.ignore_data_skip", (False,), "a resumed run would begin with the first problems again"),
)
