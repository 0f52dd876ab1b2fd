"""A group of three responses of random token vectors, one of no tokens, and an anchor."""

import torch

from gar.core.similarity import ResponseTokens

WIDTH = 7
INDEX = torch.tensor([1, 0, 1, 2, 0, 1, 1])  # response 3 has no token


def group(seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[ResponseTokens, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(len(INDEX), WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    anchor = torch.randn(5, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    return ResponseTokens(vectors, INDEX, 4), anchor


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=0, eps=0))


def tokens_of(responses: ResponseTokens, i: int) -> torch.Tensor:
    return responses.vectors[responses.response_index == i].double()
