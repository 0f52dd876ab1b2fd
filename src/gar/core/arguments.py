"""Arguments: records of tokens, head, signal and budget, and the checks that all formulas share."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

SignalKind = Literal["gradient-activation", "gradient", "hidden"]
Precision = Literal["auto", "float32", "storage"]

DEFAULT_MEMORY_BYTES = 2**28


class ScoredTokens(NamedTuple):
    """The scored tokens of all responses in one list, in any order.

    Attributes:
        hidden: Inputs of the LM head, [tokens, hidden]. `hidden[t]` predicts `target_ids[t]`.
        target_ids: Token ids, [tokens].
        response_index: The response that a token belongs to, in [0, num_responses), [tokens].
        num_responses: Rows of the result.
    """

    hidden: Tensor
    target_ids: Tensor
    response_index: Tensor
    num_responses: int

    def at(self, rows: Tensor) -> "ScoredTokens":
        """The tokens at `rows`."""
        return ScoredTokens(self.hidden[rows], self.target_ids[rows], self.response_index[rows], self.num_responses)


class Head(NamedTuple):
    """An LM head, never differentiated, and its logits: `softcap(logit_scale * (W h + bias)) / temperature`.

    `softcap(z) = logit_softcap * tanh(z / logit_softcap)` (Gemma 2), or the identity if `logit_softcap` is None.
    Cohere multiplies by `logit_scale`. For Granite, which divides, pass the inverse.
    """

    weight: Tensor  # [vocab, hidden]
    bias: Tensor | None = None  # [vocab]
    temperature: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float | None = None

    @property
    def slope(self) -> float:
        """The factor of `W h + bias` in the logits, without the soft-cap."""
        return self.logit_scale / self.temperature


class Signal(NamedTuple):
    """Which u_t is used, and which tokens of a response are averaged.

    Attributes:
        kind: "gradient-activation", "gradient" (u_t = W^T(p - e)) or "hidden" (u_t = h_t).
        activation_threshold: tau_a: dimensions with `|h_tj| < tau_a * max_j |h_tj|` do not count in u_t.
        keep_fraction: p_f: the share of a response's tokens that is averaged, those with the largest `||u_t||`. One
            number, or one per response.
    """

    kind: SignalKind = "gradient-activation"
    activation_threshold: float = 0.0
    keep_fraction: float | Tensor = 1.0

    def kept(self, tokens: ScoredTokens) -> Tensor:
        """p_f of each response, float64 [responses]."""
        fraction = torch.as_tensor(self.keep_fraction, dtype=torch.float64, device=tokens.hidden.device)
        return fraction.expand(tokens.num_responses)


class Budget(NamedTuple):
    """Limits on memory and precision. They change the result only by rounding.

    Attributes:
        memory_bytes: Temporary-memory limit in bytes, excluding inputs and output.
        chunk_tokens: Largest number of tokens with logits in memory at one time. None chooses.
        precision: Precision of the two matrix products with W. "float32" widens W tile by tile, without TF32. "storage"
            uses a bfloat16 W as it is, with float32 logits. "auto" is storage for a large bfloat16 head where the
            device has bfloat16 products (a GPU, or a CPU with avx512_bf16 or amx_bf16), else float32.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    chunk_tokens: int | None = None
    precision: Precision = "auto"


def check_arguments(tokens: ScoredTokens, head: Head, signal: Signal, vocab_size: int) -> None:
    """Reject shapes that disagree, indices out of range (`vocab_size` rows), and unknown settings."""
    _check_tensors(tokens, head, vocab_size)
    _check_settings(head, signal, tokens.num_responses)


def _check_tensors(tokens: ScoredTokens, head: Head, vocab_size: int) -> None:
    hidden = tokens.hidden
    if hidden.ndim != 2:
        raise ValueError(
            f"hidden must have shape [tokens, hidden], got {tuple(hidden.shape)}. Flatten the scored tokens of all "
            "responses into one list."
        )
    rows, width = head.weight.shape
    if hidden.shape[1] != width:
        raise ValueError(
            f"hidden and lm_head_weight must agree in their last dimension, got {hidden.shape[1]} and {width}. "
            "Is the weight transposed?"
        )
    per_token = {"target_ids": tokens.target_ids, "response_index": tokens.response_index}
    tensors = {"hidden": hidden, "lm_head_weight": head.weight, **per_token}
    if len({tensor.device for tensor in tensors.values()}) > 1:
        devices = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
        raise ValueError(f"all arguments must be on one device, got {devices}")
    if head.bias is not None and head.bias.shape != (rows,):
        raise ValueError(f"bias must have one entry per row of the head, expected {rows}, got {tuple(head.bias.shape)}")
    for name, tensor in per_token.items():
        if tensor.shape != (len(hidden),):
            raise ValueError(f"{name} must have one entry per token, expected {len(hidden)}, got {tuple(tensor.shape)}")
    _check_range("target_ids", tokens.target_ids, vocab_size, "Do the tokenizer and the model belong together?")
    _check_range("response_index", tokens.response_index, tokens.num_responses, "Did a padding token keep its -1?")


def _check_settings(head: Head, signal: Signal, num_responses: int) -> None:
    check_choice("signal", signal.kind, get_args(SignalKind))
    softcap, threshold = head.logit_softcap, signal.activation_threshold
    kept = torch.as_tensor(signal.keep_fraction, dtype=torch.float64)
    for name, expected, value, holds in (
        ("temperature", "positive", head.temperature, head.temperature > 0),
        ("logit_scale", "positive", head.logit_scale, head.logit_scale > 0),
        ("logit_softcap", "positive or None", softcap, softcap is None or softcap > 0),
        ("activation_threshold", "in [0, 1]", threshold, 0 <= threshold <= 1),
        ("keep_fraction", "in (0, 1]", kept.tolist(), bool(((kept > 0) & (kept <= 1)).all())),
    ):
        if not holds:
            raise ValueError(f"{name} must be {expected}, got {value}")
    if kept.ndim and kept.shape != (num_responses,):
        raise ValueError(
            f"keep_fraction must be one number or one per response, expected {num_responses}, got {tuple(kept.shape)}"
        )


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Reject a value that is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_range(name: str, index: Tensor, size: int, hint: str) -> None:
    """Reject an index outside [0, size)."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        raise ValueError(f"{name} must lie in [0, {size}), got {int(index.min())} to {int(index.max())}. {hint}")


def check_shapes(shape: Sequence[int], **tensors: Tensor) -> None:
    """Reject a tensor of a different shape. Keywords are the names of the arguments."""
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def check_finite(name: str, values: Tensor, counted: Tensor | None = None, *, hint: str = "") -> None:
    """Reject NaN and infinity among the counted values, shape [responses]."""
    bad = ~values.isfinite() if counted is None else ~values.isfinite() & counted
    if bool(bad.any()):
        response = int(bad.nonzero()[0])
        raise ValueError(f"{name} must be finite, got {values[response].item()} at response {response}{hint}")


def as_given(result: Tensor, argument: Tensor) -> Tensor:
    """The result in the argument's dtype, or in `torch.get_default_dtype()` if that is an integer or bool.

    An integer dtype would truncate results: advantages of 0.58 and -1.73 would be 0 and -1.

    Example:
        >>> as_given(torch.tensor([0.5]).double(), torch.tensor([1]))
        tensor([0.5000])
    """
    return result.to(argument.dtype if argument.is_floating_point() else torch.get_default_dtype())
