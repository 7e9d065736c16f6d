"""Whether ReLU within a library's product keeps NaN: not documented, so the library is asked, once for each dtype."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.kernel_set import TensorSpec

Values = Array | None


class Trial(Protocol):
    """Runs a routine of library calls on the GPU."""

    def __call__(self, routine: Routine, specs: Sequence[TensorSpec | None], values: Sequence[Values]) -> Values:
        """The last tensor's values after a run over these values; None where that cannot be tried now."""


class Question(NamedTuple):
    """A product with ReLU in it, and the specs of x, weight, bias and y. routine: None if the library has none."""

    routine: Routine | None
    specs: tuple[TensorSpec, TensorSpec, TensorSpec | None, TensorSpec]

    @property
    def values(self) -> tuple[Values, ...]:
        """The first sample is NaN, the second gives negative sums, the third positive ones. y holds neither."""
        x, weight, bias, y = self.specs
        samples = np.array([np.nan, -1, 1]).reshape(3, *[1] * (x.ndim - 1))
        return (
            np.broadcast_to(samples, x.shape).astype(x.dtype),
            np.ones(weight.shape).astype(weight.dtype),
            None if bias is None else np.zeros(bias.shape).astype(bias.dtype),
            np.full(y.shape, -7).astype(y.dtype),
        )


class NanProbe:
    """Answers by key. trial: how the GPU is asked; None: the library is known to keep NaN, as stand-ins are."""

    def __init__(self, trial: Trial | None = None) -> None:
        self._trial = trial
        self._known: dict[Hashable, bool] = {}

    def keeps_nan(self, key: Hashable, questions: Callable[[], Iterable[Question]]) -> bool:
        """Whether all of the questions' products that there are keep it; False, too, where it cannot be tried now."""
        if self._trial is None:
            return True
        if key not in self._known:
            answers = [self._answer(self._trial, question) for question in questions() if question.routine is not None]
            if None in answers:
                return False
            self._known[key] = bool(answers) and all(answers)
        return self._known[key]

    def _answer(self, trial: Trial, question: Question) -> bool | None:
        """None if it was not tried."""
        result = None if question.routine is None else trial(question.routine, question.specs, question.values)
        if result is None:
            return None
        nan, negative, positive = result.astype(np.float64)
        return bool(np.isnan(nan).all() and (negative == 0).all() and (positive > 0).all())
