"""Group normalisation: channels of a sample, group by group."""

from __future__ import annotations

from singa_lite.autograd.ops.normalization import SampleNorm
from singa_lite.common.checks import finite_above_zero, integer
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class GroupNorm(SampleNorm):
    """Normalises each group of channels of each sample by its own statistics."""

    kernel = "group_norm"

    def __init__(self, groups: int, epsilon: float) -> None:
        self.groups, self.epsilon = groups, epsilon

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if x.ndim < 2 or gamma.shape != x.shape[1:2] or beta.shape != gamma.shape or x.shape[1] % self.groups:
            raise ShapeError(
                f"group_norm: wanted x (n, c, ...), gamma and beta (c,), and {self.groups} groups dividing c, received "
                f"{x.shape}, {gamma.shape} and {beta.shape}"
            )
        return self.normalize(x, gamma, beta, (x.shape[0], self.groups), self.epsilon)


def group_norm(x: Tensor, groups: int, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5) -> Tensor:
    """gamma * (x - mean) / sqrt(var + epsilon) + beta, with mean and biased variance of each group of channels of each
    sample. A group has c / groups channels (Wu and He, arXiv 1803.08494). x: (n, c, ...); gamma, beta: (c,); groups
    divides c.
    """
    groups = integer("group_norm groups", groups, 1)
    return GroupNorm(groups, finite_above_zero("group_norm epsilon", epsilon))(x, gamma, beta)
