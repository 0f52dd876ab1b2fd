"""gar-token: the bonus goes to the tokens that the alignment comes from (ours)."""

from dataclasses import replace

from gar.methods.gar import GAR_GRPO

GAR_TOKEN = replace(
    GAR_GRPO,
    name="gar-token",
    summary="outcome normalised within the group, separate bonus spread over tokens by their shares in the alignment",
    token_bonus=True,
)
