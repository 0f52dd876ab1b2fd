"""GAR inside slime (>= 0.3.0), through slime's own hooks and without a patch.

    --custom-config-path gar.yaml
    --custom-convert-samples-to-train-data-path gar.integrations.slime.convert_samples
    --custom-megatron-init-path gar.integrations.slime.on_megatron_init
    --rollout-data-postprocess-path gar.integrations.slime.postprocess
    --custom-rm-path gar.integrations.slime.outcome_reward    (optional)
    --dynamic-sampling-filter-path gar.integrations.slime.keeps_signal    (optional)
    --custom-megatron-before-log-prob-hook-path gar.integrations.slime.before_log_prob    (with `capture: logprob`)

Importing this imports neither slime nor Megatron.
"""

from gar.integrations.slime.convert import convert_samples, keeps_signal, outcome_reward
from gar.integrations.slime.policy import before_log_prob, on_megatron_init
from gar.integrations.slime.postprocess import postprocess

__all__ = ["before_log_prob", "convert_samples", "keeps_signal", "on_megatron_init", "outcome_reward", "postprocess"]
