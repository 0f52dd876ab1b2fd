"""Every setting of `gar score`. Importing this imports no torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from gar.data.prompts import PromptTemplate
from gar.data.responses import ResponseColumns
from gar.settings import AdvantageSettings, ModelSettings, RewardSettings, SignalSettings, VerifySettings

# These change the output only by rounding, or are compared by content, not by name.
_INDIFFERENT: dict[str, Any] = {
    **dict.fromkeys(["model", "revision", "file", "out", "window", "attention", "device"], True),
    **dict.fromkeys(["overwrite", "allow_degenerate"], True),
    "verify": {"num_workers"},
    "signal": {"max_batch_tokens"},
}


class ScoreJob(ResponseColumns):
    """Input, model, settings and output of `gar score`.

    Example: ScoreJob(model="Qwen/Qwen3-0.6B", file="rollouts.jsonl", out=Path("scores.parquet"))
    """

    model: str
    """A Hub id, a local folder, a PEFT adapter, or "embedded"."""
    file: str
    """A .jsonl or .parquet file, one problem with its responses per row."""
    out: Path | None = None
    """A .jsonl or .parquet file, one response per row. By default FILE.scores.jsonl in the current folder."""
    template: PromptTemplate = "plain"
    """Put the prompt into this template, as training does. plain leaves it as it is."""
    tokens: bool = False
    """Also write each token's text and its exact share in the alignment."""
    eligible_only: bool = False
    """Score only responses that could earn a bonus, as training does. Rewards stay the same."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Read only this many rows, from the start."""
    window: Annotated[int, Field(ge=1)] = 256
    """Responses to score at one time. More need less padding. Fewer need less memory and lose less if killed."""
    revision: str | None = None
    """Commit, tag or branch of a Hub model."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Dtype of the loaded weights: auto keeps the checkpoint's."""
    attention: str | None = None
    """Attention implementation, for example sdpa or flash_attention_2."""
    device: str | None = None
    """For example cuda:1 or cpu. By default an accelerator if there is one."""
    overwrite: bool = False
    """Replace a finished output, and remove an unfinished one with other settings, input or model."""
    allow_degenerate: bool = False
    """Exit with 0 even if every response failed in the same way."""
    verify: VerifySettings = VerifySettings()
    signal: SignalSettings = SignalSettings()
    reward: RewardSettings = RewardSettings()
    advantage: AdvantageSettings = AdvantageSettings()

    def model_settings(self) -> ModelSettings:
        """How to load the model."""
        return ModelSettings(path=self.model, revision=self.revision, dtype=self.dtype, attention=self.attention)

    def identity(self) -> dict[str, Any]:
        """Settings that must match to resume, as plain values."""
        return self.model_dump(mode="json", exclude=_INDIFFERENT)
