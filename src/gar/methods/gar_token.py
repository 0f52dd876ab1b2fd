"""gar-token: the bonus goes to the tokens that the alignment comes from (ours)."""

from gar.methods.base import BONUS_SETTINGS, Method
from gar.methods.gar import gradient_aligned_shape

GAR_TOKEN = Method(
    name="gar-token",
    summary="outcome normalised within the group, separate bonus spread over tokens by their shares in the alignment",
    shape=gradient_aligned_shape,
    reward=BONUS_SETTINGS,
    alignment="anchor",
    token_bonus=True,
)
