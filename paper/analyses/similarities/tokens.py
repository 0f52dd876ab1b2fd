"""Gradients, hidden states and log-probabilities of each token of a solution: the input of similarities."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gar import SignalSettings, TokenSequence
from gar.core import gradient_activation_means
from gar.models import ModelParts
from gar.scoring import token_pieces
from paper.analyses.policies import Policy
from paper.analyses.similarities.solutions import LabeledSolution, solution_sequences

_LOGIT_ROWS = 64
"""Tokens with logits in memory at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SolutionTokens:
    """The scored tokens of one solution after its prompt.

    Attributes:
        gradients: g_t = W^T (p_t - e), [tokens, hidden].
        hidden: h_t, [tokens, hidden].
        log_probs: Log-probability of each token, [tokens].
        text: What the tokens decode to.
        sizes: Root mean square of each dimension of g_t * h_t over the tokens of all anchors, [hidden].
        initial: The same under the policy that the run started from. None if there is no other.
    """

    gradients: Tensor
    hidden: Tensor
    log_probs: Tensor
    text: str
    sizes: Tensor
    initial: "SolutionTokens | None" = None

    def __len__(self) -> int:
        return len(self.hidden)

    @property
    def products(self) -> Tensor:
        """The paper's u_t = g_t * h_t, [tokens, hidden]."""
        return self.gradients * self.hidden

    @property
    def scaled(self) -> Tensor:
        """g_t * h_t with each dimension divided by its usual size, so that a few dimensions do not decide a cosine."""
        return torch.where(self.sizes > 0, self.products / self.sizes, 0.0)

    @property
    def at_start(self) -> "SolutionTokens":
        """The same tokens under the policy that the run started from."""
        return self if self.initial is None else self.initial


def read_solutions_as(
    policy: Policy, solutions: Sequence[LabeledSolution], anchors: Collection[int], initial: Policy | None = None
) -> list[SolutionTokens]:
    """The tokens of each solution under the policy, and under the policy that its run started from.

    Args:
        policy: The policy that gives gradients.
        solutions: The solutions, each read after its own prompt.
        anchors: Indices of the anchors, which give the sizes of dimensions.
        initial: The policy that the run started from, with the same tokenizer. None: there is no other.
    """
    sequences = solution_sequences(policy, solutions)
    pieces = token_pieces(policy.tokenizer)
    texts = ["".join(pieces(sequence.scored_ids)) for sequence in sequences]
    now = _with_sizes(_tokens(policy.parts, policy.signal, sequences, texts), anchors)
    if initial is None:
        return now
    before = _with_sizes(_tokens(initial.parts, policy.signal, sequences, texts), anchors)
    return [replace(tokens, initial=first) for tokens, first in zip(now, before, strict=True)]


def _with_sizes(tokens: Sequence[SolutionTokens], anchors: Collection[int]) -> list[SolutionTokens]:
    products = torch.cat([tokens[i].products for i in sorted(anchors)])
    sizes = products.double().square().mean(0).sqrt().float()
    return [replace(one, sizes=sizes) for one in tokens]


@torch.no_grad()
def _tokens(
    parts: ModelParts, settings: SignalSettings, sequences: Sequence[TokenSequence], texts: Sequence[str]
) -> list[SolutionTokens]:
    return [_read(parts, settings, sequence, text) for sequence, text in zip(sequences, texts, strict=True)]


def _read(parts: ModelParts, settings: SignalSettings, sequence: TokenSequence, text: str) -> SolutionTokens:
    nothing = torch.zeros(0, parts.width)
    if not sequence.positions:
        return SolutionTokens(gradients=nothing, hidden=nothing, log_probs=nothing[:, 0], text=text, sizes=nothing)
    start, device = len(sequence.context_ids), parts.device
    ids = torch.tensor([*sequence.context_ids, *sequence.ids], device=device)
    targets = torch.tensor(sequence.positions, device=device) + start
    states = parts.backbone(input_ids=ids[None, : int(targets[-1])], use_cache=False).last_hidden_state[0]
    hidden, target_ids = states[targets - 1], ids[targets]
    gradients = gradient_activation_means(  # a mean over one token is its vector
        hidden, parts.weight, target_ids, torch.arange(len(hidden), device=device), num_responses=len(hidden),
        signal="gradient", bias=parts.bias, temperature=settings.temperature, logit_scale=parts.logit_scale,
        logit_softcap=parts.logit_softcap, memory_bytes=settings.memory_bytes,
    )  # fmt: skip
    log_probs = [
        -torch.nn.functional.cross_entropy(parts.logits(h).float(), y, reduction="none")
        for h, y in zip(hidden.split(_LOGIT_ROWS), target_ids.split(_LOGIT_ROWS), strict=True)
    ]
    return SolutionTokens(
        gradients=gradients.cpu(), hidden=hidden.float().cpu(), log_probs=torch.cat(log_probs).cpu(), text=text,
        sizes=nothing,
    )  # fmt: skip
