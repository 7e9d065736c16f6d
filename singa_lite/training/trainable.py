"""What the training loop knows a net by."""

from __future__ import annotations

from os import PathLike
from typing import Protocol

from singa_lite.common.array_types import DType
from singa_lite.layer.layer import OneOrMore
from singa_lite.optimizer import Optimizer
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.tensor import Tensor
from singa_lite.training.loop.evaluation import Evaluable


class Trainable(Evaluable, Protocol):
    """The protocol by which the training loop, and callbacks, know a net."""

    seed: int
    optimizer: Optimizer | None

    @property
    def knows_measures(self) -> bool: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def parallel(self) -> DataParallel | None: ...

    @property
    def loss_weight(self) -> float: ...

    def train_one_batch(
        self, x: object, y: object, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]: ...

    def save(self, path: str | PathLike[str], *, weights_only: bool = False, **options: object) -> None: ...

    def print_norms(self) -> None: ...
