"""The judge of Grad2Reward: a frozen model gives a verdict on a response, and its gradient the tokens that decided it.

The judge is the policy before training. It reads problem and response. With `g_t = d log p(True) / d e_t`, the gradient
of the verdict "True" with respect to the input embedding of response token t, the score of the token is
`b_t = g_t . e_t`. It does not depend on the scale of the embeddings, so a model that scales them (Gemma) needs no
special case.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from gar import ModelError, Prompt, Tags
from gar.models import evaluation_mode, find_parts
from gar.scoring import batches_by_length, context_of, special_ids, without_trailing_special
from paper.methods.judge_prompt import JudgePrompt, JudgePrompts
from paper.methods.judge_settings import JudgeSettings
from paper.methods.token_rewards import (
    attributed_rewards,
    attribution_weights,
    effective_token_counts,
)

_PROBE_TOKENS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgments:
    """Scores and verdicts for some responses.

    Attributes:
        scores: b_t of each response, [tokens], float32 at least, on the judge's device. Trailing special tokens of a
            response are not shown to the judge and have no score.
        log_odds: log p(True) - log p(False) of the judge's verdict, [responses].
    """

    scores: list[Tensor]
    log_odds: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRewards:
    """Rewards of single tokens, and diagnostics.

    Attributes:
        rewards: [responses, tokens], float64, in the layout and on the device of the mask.
        effective_tokens: How many tokens share the verdict, [responses]. NaN where the judge was not asked.
        log_odds: Log-odds of the judge's verdict, [responses]. NaN where the judge was not asked.
    """

    rewards: Tensor
    effective_tokens: Tensor
    log_odds: Tensor


class Judge:
    """A frozen model and its prompt.

    Training must not change the model: pass a `frozen_copy`. No parameter gets a gradient. Training modes are restored.

    Args:
        model: A causal language model of transformers, with or without a PEFT adapter.
        tokenizer: Its tokenizer, which must be the policy's.
        settings: Prompt, verdicts, temperature, and the tokens of a batch.
        tags: Markers of the response format. They are shown to the judge even where they are special tokens.

    Raises:
        ConfigError: The template cannot be used: see `JudgePrompts`.
        ModelError: The tokenizer cannot write the verdicts, `find_parts` rejects the model's head, or the model uses
            its token ids for more than their input embeddings.

    Example:
        >>> from gar.models import load_embedded
        >>> from paper.methods.frozen import frozen_copy
        >>> model, tokenizer = load_embedded()
        >>> judge = Judge(frozen_copy(model), tokenizer, JudgeSettings(template="arithmetic"))
        >>> solution = "<think> [ 3 + 4 = 7 ] </think> <answer> 7 </answer>"
        >>> judgments = judge.token_scores(["3+4="], [tokenizer.encode(solution)])
        >>> judgments.scores[0].shape, (judgments.log_odds > 0).tolist()
        (torch.Size([12]), [True])
    """

    def __init__(self, model: Any, tokenizer: Any, settings: JudgeSettings, *, tags: Tags | None = None):
        settings = settings.resolved()
        self._model = model
        self._settings = settings
        self._prompts = JudgePrompts(tokenizer, settings)
        self._special_ids = special_ids(tokenizer, tags or Tags())
        self._parts = find_parts(model)
        with evaluation_mode(model):
            self._check_embeddings()

    def to(self, device: torch.device) -> "Judge":
        """Move the judge's model, which must be a `frozen_copy`."""
        self._parts = find_parts(self._model.to(device))
        return self

    def token_scores(self, problems: Sequence[Prompt], responses: Sequence[Sequence[int]]) -> Judgments:
        """Scores of all tokens, and the judge's verdicts.

        One forward and one backward pass per batch, in the judge's dtype. Log-probabilities and scores are float32.

        Args:
            problems: The problem text of each response.
            responses: Token ids as the policy sampled them.

        Raises:
            ModelError: A problem is not plain text, a prompt is longer than the model's context, or a score is not
                finite.
        """
        rows = [
            self._prompts.write(problem, without_trailing_special(response, self._special_ids))
            for problem, response in zip(problems, responses, strict=True)
        ]
        self._check_lengths(rows)
        scores: list[Tensor] = [torch.empty(0)] * len(rows)
        dtype = torch.promote_types(self._parts.weight.dtype, torch.float32)
        log_odds = torch.zeros(len(rows), dtype=dtype, device=self._parts.weight.device)
        longest_verdict = max(len(self._prompts.true_ids), len(self._prompts.false_ids))
        with evaluation_mode(self._model):
            lengths = [len(row.ids) + longest_verdict - 1 for row in rows]
            for members in batches_by_length(lengths, self._settings.max_batch_tokens):
                batch_scores, log_odds[members] = self._judge_batch([rows[i] for i in members])
                for i, values in zip(members, batch_scores, strict=True):
                    scores[i] = values
        return Judgments(scores=scores, log_odds=log_odds)

    def token_rewards(
        self,
        problems: Sequence[Prompt],
        responses: Sequence[Sequence[int]],
        outcomes: Tensor,
        penalty: Tensor,
        mask: Tensor,
    ) -> TokenRewards:
        """Grad2Reward's reward of each token, for `returns_to_go` and `group_token_advantages`.

        `alpha_t V`, plus `V + penalty` on the last token. The outcome V is the verifier's. With V = 0 there is nothing
        to distribute, and the judge is not asked.

        Args:
            problems: The problem text of each response.
            responses: Token ids as the policy sampled them.
            outcomes: [responses], V: the base reward of an eligible response, else 0.
            penalty: [responses], for bad format.
            mask: [responses, tokens], True for the tokens that count. Column t is token t of the response.

        Raises:
            ValueError: Shapes disagree, or the mask counts tokens that a response does not have.
            ModelError: As `token_scores`.
        """
        _check_layout(responses, outcomes, mask)
        asked = [i for i, outcome in enumerate(outcomes.tolist()) if outcome]
        judged = self.token_scores([problems[i] for i in asked], [responses[i] for i in asked])
        weights = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for i, scores in zip(asked, judged.scores, strict=True):
            known = min(len(scores), mask.shape[1])
            values, counted = scores[None, :known].to(weights), mask[i : i + 1, :known]
            weights[i, :known] = attribution_weights(values, counted, temperature=self._settings.temperature)[0]
        log_odds = torch.full((len(mask),), torch.nan, dtype=torch.float64, device=mask.device)
        log_odds[asked] = judged.log_odds.to(log_odds)
        return TokenRewards(
            rewards=attributed_rewards(weights, outcomes, penalty, mask),
            effective_tokens=effective_token_counts(weights).where(log_odds.isfinite(), torch.nan),
            log_odds=log_odds,
        )

    def _judge_batch(self, rows: Sequence[JudgePrompt]) -> tuple[list[Tensor], Tensor]:
        """Scores of each row's response tokens, and the log-odds of each row."""
        true_ids, false_ids = self._prompts.true_ids, self._prompts.false_ids
        with torch.enable_grad():
            embeddings = self._embed(rows, true_ids).requires_grad_()
            log_probs = self._verdict_log_probs(rows, embeddings, len(true_ids))
            log_true = _log_prob_of(true_ids, log_probs)
            (gradients,) = torch.autograd.grad(log_true.sum(), embeddings)  # parameters get no gradient
        log_probs = log_probs.detach()
        if len(false_ids) > 1:
            with torch.no_grad():
                log_probs = self._verdict_log_probs(rows, self._embed(rows, false_ids), len(false_ids))
        log_false = _log_prob_of(false_ids, log_probs)
        scores = (gradients.to(log_true.dtype) * embeddings.detach().to(log_true.dtype)).sum(-1)
        if not bool(scores.isfinite().all() and log_true.isfinite().all()):
            raise ModelError(
                f"the judge gives NaN or infinity in a batch of {len(rows)} prompts of up to {embeddings.shape[1]} "
                "tokens. Does its dtype overflow, or is the checkpoint damaged?"
            )
        row_scores = [scores[i, row.start : row.start + row.num_tokens] for i, row in enumerate(rows)]
        return row_scores, log_true.detach() - log_false

    def _embed(self, rows: Sequence[JudgePrompt], verdict_ids: Sequence[int]) -> Tensor:
        """Input embeddings of the prompts, each followed by a verdict without its last token, padded on the right."""
        ids = pad_sequence([torch.tensor([*row.ids, *verdict_ids[:-1]]) for row in rows], batch_first=True)
        with torch.no_grad():
            return self._embedding_layer(ids.to(self._parts.weight.device)).detach()

    def _verdict_log_probs(self, rows: Sequence[JudgePrompt], embeddings: Tensor, num_verdict: int) -> Tensor:
        """log p of every token at each position of the verdict, [rows, verdict tokens, vocab]."""
        device = embeddings.device
        ends = torch.tensor([len(row.ids) for row in rows], device=device)[:, None]
        mask = (torch.arange(embeddings.shape[1], device=device) < ends + num_verdict - 1).long()
        hidden = self._parts.backbone(inputs_embeds=embeddings, attention_mask=mask, use_cache=False).last_hidden_state
        places = ends - 1 + torch.arange(num_verdict, device=device)
        logits = self._parts.logits(hidden[torch.arange(len(rows), device=device)[:, None], places])
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    @property
    def _embedding_layer(self) -> nn.Module:
        return self._model.get_input_embeddings()

    def _check_lengths(self, rows: Sequence[JudgePrompt]) -> None:
        context = context_of(self._model.config)
        longest = max((len(row.ids) for row in rows), default=0)
        if context is not None and longest > context:
            raise ModelError(
                f"a judge prompt has {longest} tokens, but the model reads at most {context}. Shorten "
                "trl.max_completion_length or the template."
            )

    @torch.no_grad()
    def _check_embeddings(self) -> None:
        """Reject a model that looks up its token ids twice (per-layer embeddings): the gradient would miss that."""
        ids = torch.arange(_PROBE_TOKENS, device=self._parts.weight.device)[None]
        whole = self._parts.backbone(input_ids=ids, use_cache=False).last_hidden_state
        embedded = self._parts.backbone(inputs_embeds=self._embedding_layer(ids), use_cache=False).last_hidden_state
        if not torch.allclose(embedded, whole, rtol=1e-2, atol=1e-2 * float(whole.abs().max())):
            raise ModelError(
                f"{type(self._model).__name__} computes different hidden states from input embeddings than from token "
                "ids, so a gradient with respect to the embeddings would miss part of a token's effect. Does it have "
                "per-layer embeddings? It cannot be a judge."
            )


def _log_prob_of(verdict_ids: Sequence[int], log_probs: Tensor) -> Tensor:
    places = list(range(len(verdict_ids)))
    return log_probs[:, places, list(verdict_ids)].sum(-1)


def _check_layout(responses: Sequence[Sequence[int]], outcomes: Tensor, mask: Tensor) -> None:
    if not len(responses) == len(outcomes) == len(mask):
        raise ValueError(
            f"expected one outcome and one row of the mask per response, got {len(responses)} responses, "
            f"{len(outcomes)} outcomes and {len(mask)} rows"
        )
    for i, response in enumerate(responses):
        if bool(mask[i, len(response) :].any()):
            raise ValueError(
                f"the mask counts tokens after the end of response {i}, which has {len(response)}. Is the layout "
                "padded on the left?"
            )
