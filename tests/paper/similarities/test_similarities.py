"""The table of similarities: each name against what it is made of."""

import itertools

import pytest
import torch

from paper.analyses.similarities.forms import CONTROLS, SIMILARITIES, all_similarities
from paper.analyses.similarities.tokens import SolutionTokens

pytestmark = pytest.mark.paper


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
    """The best pairing by brute force: every choice of as many tokens on both sides, in their order."""
    cosines, best = units(one) @ units(other).T, 0.0
    for count in range(1, min(cosines.shape) + 1):
        for rows in itertools.combinations(range(len(one)), count):
            for columns in itertools.combinations(range(len(other)), count):
                best = max(best, cosines[list(rows), list(columns)].sum().item())
    return best / len(other)


def mean_outer_product(gradients: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    return torch.einsum("ti,tj->ij", units(gradients), units(hidden)).flatten() / len(hidden)


def expected(one: SolutionTokens, other: SolutionTokens) -> dict[str, float]:
    (u, g, h), (v, k, i) = ((s.gradients * s.hidden, s.gradients, s.hidden) for s in (one, other))
    gradient, unit = cosine(g.mean(0), k.mean(0)), cosine(units(u).mean(0), units(v).mean(0))
    scaled = [s.products[:, :3] / s.sizes[:3] for s in (one, other)]
    return {
        "as printed": cosine(u.mean(0), v.mean(0)),
        "gradient": gradient,
        "unit": unit,
        "unit gradient": cosine(units(g).mean(0), units(k).mean(0)),
        "match, recall": best(u, v)[0],
        "match, F": sum(best(u, v)) / 2,
        "kernel": cosine(mean_outer_product(g, h), mean_outer_product(k, i)),
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
