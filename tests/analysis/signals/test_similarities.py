"""The table of similarities: each name against what it is made of."""

import pytest
import torch

from gar.analysis.signals.similarities import CONTROLS, SIMILARITIES, all_similarities
from gar.analysis.signals.tokens import SolutionTokens
from gar.core.similarity import ResponseTokens
from gar.core.token_match import ordered_match
from paper.analyses.tangent_kernel import output_layer_kernel


def solution(seed: int, count: int, text: str = "abc", initial: SolutionTokens | None = None) -> SolutionTokens:
    generator = torch.Generator().manual_seed(seed)
    gradients, hidden = (torch.randn(count, 4, generator=generator) for _ in range(2))
    return SolutionTokens(
        gradients=gradients, hidden=hidden, log_probs=-torch.rand(count, generator=generator), text=text,
        sizes=torch.tensor([1.0, 2.0, 0.5, 0.0]), initial=initial,
    )  # fmt: skip


ONE, OTHER = solution(1, 3), solution(2, 6, "abd")


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=-1).item()


def units(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)


def best(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    cosines = units(one) @ units(other).T
    return cosines.amax(0).mean().item(), cosines.amax(1).mean().item()


def in_order(one: torch.Tensor, other: torch.Tensor) -> float:
    return ordered_match(ResponseTokens(one, torch.zeros(len(one), dtype=torch.long), 1), other).recall.item()


def expected(one: SolutionTokens, other: SolutionTokens) -> dict[str, float]:
    (u, g, h), (v, k, i) = ((s.gradients * s.hidden, s.gradients, s.hidden) for s in (one, other))
    gradient, unit = cosine(g.mean(0), k.mean(0)), cosine(units(u).mean(0), units(v).mean(0))
    scaled = [s.products[:, :3] / s.sizes[:3] for s in (one, other)]
    crossed, selves = (
        [output_layer_kernel(units(a), units(b), units(c), units(d)) for a, b, c, d in pairs]
        for pairs in ([(g, h, k, i)], [(g, h, g, h), (k, i, k, i)])
    )
    return {
        "as printed": cosine(u.mean(0), v.mean(0)),
        "gradient": gradient,
        "unit": unit,
        "unit gradient": cosine(units(g).mean(0), units(k).mean(0)),
        "match, recall": best(u, v)[0],
        "match, F": sum(best(u, v)) / 2,
        "kernel": (crossed[0] / (selves[0] * selves[1]).sqrt()).item(),
        "gradient + unit": (gradient + unit) / 2,
        "ordered": in_order(u, v),
        "ordered, scaled": in_order(*scaled),
        "gradient / 4 + ordered, scaled": gradient / 4 + in_order(*scaled),
        "hidden states": cosine(h.mean(0), i.mean(0)),
        "match of hidden states": best(h, i)[0],
        "ordered, of hidden states": in_order(h, i),
        "text": 2 / 3,
        "length": 0.5,
        "log-probability": one.log_probs.mean().item(),
    }


@pytest.mark.parametrize("name", [*SIMILARITIES, *CONTROLS])
def test_each_similarity_is_what_its_name_says(name):
    assert (SIMILARITIES | CONTROLS)[name](ONE, OTHER) == pytest.approx(expected(ONE, OTHER)[name], abs=1e-6)


def test_similarities_of_the_initial_policy_use_its_vectors():
    trained, anchor = (solution(seed, 3, initial=start) for seed, start in ((7, ONE), (8, OTHER)))
    table = all_similarities(with_start=True)
    for name in SIMILARITIES:
        assert table[f"{name}, initial"](trained, anchor) == SIMILARITIES[name](ONE, OTHER)
        assert table[name](trained, anchor) == SIMILARITIES[name](trained, anchor) != SIMILARITIES[name](ONE, OTHER)


def test_all_similarities_keeps_controls_last():
    assert list(all_similarities(with_start=False)) == [*SIMILARITIES, *CONTROLS]
    assert len(all_similarities(with_start=True)) == 2 * len(SIMILARITIES) + len(CONTROLS)
