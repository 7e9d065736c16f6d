"""Losses against their formulas, their gradients against central differences, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from kernel_formulas import huber, mean_of_samples, sigmoid_cross_entropy, softmax_cross_entropy
from singa_lite import GraphError, ShapeError, autograd, device, loss, tensor
from singa_lite.tensor import Tensor

RNG = np.random.default_rng(3)


def cross_entropy(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    return softmax_cross_entropy(x, target)[0]


def cosine(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return mean_of_samples(-(x * t).sum(-1) / np.sqrt((x**2).sum(-1) * (t**2).sum(-1)))


def divergence(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    return mean_of_samples((t * np.log(np.where(t > 0, t, 1) / p)).sum(1))


class Quartic(loss.Loss):
    """A loss of a user's own: the mean over a sample of (x - target)**4, out of operations."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return autograd.reduce_mean(autograd.power(x - target, 4.0), 1)


class Case(NamedTuple):
    make: Callable[[], loss.Loss]
    x: np.ndarray
    y: np.ndarray
    formula: Callable[[np.ndarray, np.ndarray], np.ndarray]


def scores(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1.5, shape)


MULTI_HOT = np.array([[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]])
PROBABILITIES = np.array([[0.25, 0.0, 0.5, 0.25], [0.0, 0.0, 0.0, 1.0], [0.1, 0.2, 0.3, 0.4]])
CASES = {
    "ids": Case(loss.SoftmaxCrossEntropy, scores(5, 3), np.array([2, 0, 1, 1, 2]), cross_entropy),
    "multi-hot": Case(loss.SoftmaxCrossEntropy, scores(3, 4), MULTI_HOT, cross_entropy),
    "weights": Case(loss.SoftmaxCrossEntropy, scores(2, 3), RNG.uniform(0, 9, (2, 3)), cross_entropy),
    "spatial ids": Case(loss.SoftmaxCrossEntropy, scores(2, 3, 4, 5), RNG.integers(0, 3, (2, 4, 5)), cross_entropy),
    "spatial rows": Case(loss.SoftmaxCrossEntropy, scores(2, 3, 4, 5), RNG.uniform(0, 1, (2, 3, 4, 5)), cross_entropy),
    "sigmoid": Case(loss.SigmoidCrossEntropy, scores(3, 2, 4), RNG.uniform(0, 1, (3, 2, 4)), sigmoid_cross_entropy),
    "squared error": Case(loss.SquaredError, scores(3, 2, 4), scores(3, 2, 4), lambda x, t: (x - t) ** 2 / 2),
    "huber": Case(lambda: loss.Huber(0.7), scores(3, 5), scores(3, 5), lambda x, t: huber(x, t, 0.7)),
    "mean squared error": Case(loss.MeanSquaredError, scores(3, 2, 4), scores(3, 2, 4), lambda x, t: (x - t) ** 2),
    "mean absolute error": Case(loss.MeanAbsoluteError, scores(3, 2, 4), scores(3, 2, 4), lambda x, t: np.abs(x - t)),
    "cosine": Case(loss.CosineSimilarity, scores(3, 2, 4), scores(3, 2, 4), cosine),
    "hinge": Case(
        loss.Hinge,
        scores(3, 2, 4),
        RNG.choice([-1.0, 1.0], (3, 2, 4)),
        lambda x, t: mean_of_samples(np.maximum(0, 1 - x * t)),
    ),
    "divergence": Case(loss.KLDivergence, scores(3, 4), PROBABILITIES, divergence),
    "spatial divergence": Case(
        loss.KLDivergence, scores(2, 3, 5), RNG.dirichlet([1, 2, 3], (2, 5)).swapaxes(1, 2), divergence
    ),
    "one's own": Case(Quartic, scores(3, 5), scores(3, 5), lambda x, t: ((x - t) ** 4).mean(axis=1)),
}
IDS = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def to_tensor(array: np.ndarray) -> Tensor:
    return tensor.from_numpy(array)


@IDS
@pytest.mark.parametrize("training", [True, False])
def test_values_and_mean(case, training):
    wanted = case.formula(case.x, case.y)
    made, x = case.make(), to_tensor(case.x)
    values = made.forward(training, x, case.y)
    np.testing.assert_allclose(tensor.to_numpy(values), wanted, rtol=1e-12)
    mean = made.evaluate(training, x, to_tensor(case.y))
    assert mean.shape == ()
    assert float(mean) == pytest.approx(wanted.mean(), rel=1e-12)


@IDS
def test_float32(case):
    y = case.y.astype(np.float32) if case.y.dtype == np.float64 else case.y
    made = case.make()
    values = made.forward(True, to_tensor(case.x.astype(np.float32)), y)
    assert values.dtype == made.backward().dtype == np.float32
    np.testing.assert_allclose(tensor.to_numpy(values), case.formula(case.x, case.y), rtol=2e-5, atol=1e-6)


@IDS
def test_backward_is_the_gradient_of_the_mean(case):
    """Central differences in float64: their own error is about 1e-10 here."""
    made = case.make()
    made.forward(True, to_tensor(case.x), case.y)
    dx = tensor.to_numpy(made.backward())
    wanted = np.empty_like(case.x)
    for place in np.ndindex(case.x.shape):
        step = np.zeros_like(case.x)
        step[place] = 1e-5
        above, below = (float(case.make().evaluate(False, to_tensor(case.x + d), case.y)) for d in (step, -step))
        wanted[place] = (above - below) / 2e-5
    assert dx.shape == case.x.shape
    np.testing.assert_allclose(dx, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


def test_lists_serve_as_targets():
    x = to_tensor(CASES["ids"].x)
    values = loss.SoftmaxCrossEntropy().forward(False, x, [2, 0, 1, 1, 2])
    np.testing.assert_allclose(tensor.to_numpy(values), cross_entropy(CASES["ids"].x, CASES["ids"].y))


# ---- forward and backward in turn


def test_backward_wants_a_forward_and_only_once():
    made, x, y = loss.SquaredError(), to_tensor(scores(3, 2)), scores(3, 2)
    with pytest.raises(GraphError, match="SquaredError"):
        made.backward()
    made.forward(False, x, y)
    with pytest.raises(GraphError):
        made.backward()
    made.forward(True, x, y)
    made.backward()
    with pytest.raises(GraphError):
        made.backward()


def test_evaluation_leaves_a_step_alone_and_a_later_forward_takes_its_place():
    made, x, y = loss.SquaredError(), scores(3, 2), scores(3, 2)
    made.forward(True, to_tensor(x), y)
    made.evaluate(False, to_tensor(x + 1), y)
    np.testing.assert_allclose(tensor.to_numpy(made.backward()), (x - y) / 6)
    made.forward(True, to_tensor(x), y)
    made.forward(True, to_tensor(x + 1), y)
    np.testing.assert_allclose(tensor.to_numpy(made.backward()), (x + 1 - y) / 6)


def test_the_tape_of_a_net_does_not_pass_through():
    """x may itself be on a tape: the loss starts one of its own, and its values are on none."""
    parameter = to_tensor(scores(3, 2))
    parameter.stores_grad = True
    made = loss.SquaredError()
    values = made.forward(True, autograd.relu(parameter), scores(3, 2))
    assert values.creator is None
    assert not values.requires_grad
    assert made.backward().shape == (3, 2)


def test_evaluation_keeps_nothing():
    own = device.new_cpu()
    x, y = tensor.from_numpy(scores(4, 3), own), tensor.from_numpy(np.array([0, 2, 1, 1]), own)
    made, before = loss.SoftmaxCrossEntropy(), own.pool.used
    values = made.forward(False, x, y)
    del values
    assert own.pool.used == before
    made.forward(True, x, y)
    assert own.pool.used > before
    made.backward()
    assert own.pool.used == before


class Constant(loss.Loss):
    """Does not depend on x."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return target


class Scalar(loss.Loss):
    """One value a batch, where one a sample is wanted."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return autograd.reduce_mean(x)


class WithParameter(loss.Loss):
    """Has a parameter, which no optimizer would see."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return x * self.weight


def test_losses_of_ones_own_that_cannot_work():
    x = to_tensor(scores(3, 2))
    independent = Constant()
    independent.forward(True, x, scores(3, 2))
    with pytest.raises(GraphError, match="Constant"):
        independent.backward()
    with pytest.raises(ShapeError, match=r"Scalar.*\(\)"):
        Scalar().forward(True, x, scores(3, 2))
    weight = to_tensor(scores(2))
    weight.stores_grad = True
    weighted = WithParameter(weight)
    weighted.forward(True, x, scores(3, 2))
    with pytest.raises(GraphError, match="WithParameter"):
        weighted.backward()


# ---- targets that do not fit


def rows_with(place: tuple[int, ...], value: float) -> np.ndarray:
    rows = np.ones((4, 3))
    rows[place] = value
    return rows


def ids_with(place: tuple[int, ...], value: int) -> np.ndarray:
    ids = np.zeros((4, 2, 5), np.int64)
    ids[place] = value
    return ids


SOFTMAX, SIGMOID = loss.SoftmaxCrossEntropy(), loss.SigmoidCrossEntropy()
FOUR = np.zeros(4, int)
#: (loss, shape of the scores, target, error, the culprit).
BAD: list[tuple[loss.Loss, tuple[int, ...], np.ndarray, type[Exception], str]] = [
    (SOFTMAX, (4, 3), np.zeros(3, int), ShapeError, r"4 targets.*\(3,\)"),
    (SOFTMAX, (4, 3), np.zeros((4, 1), int), ShapeError, r"\(4, 3\).*\(4, 1\) int64"),
    (SOFTMAX, (4, 3), np.zeros(4), TypeError, "float64"),
    (SOFTMAX, (4, 3), np.zeros(4, bool), TypeError, "bool"),
    (SOFTMAX, (4, 3), np.array([0, 2, 3, 9]), ValueError, r"SoftmaxCrossEntropy.*0 to 2, received 3 at \[2\]"),
    (SOFTMAX, (4, 3), np.array([0, -1, 2, 1]), ValueError, r"-1 at \[1\]"),
    (SOFTMAX, (4, 3), np.array([0, 1, 2, 2**63], np.uint64), ValueError, r"9223372036854775808 at \[3\]"),
    (SOFTMAX, (4, 3, 2, 5), ids_with((2, 1, 3), 7), ValueError, r"7 at \[2, 1, 3\]"),
    (SOFTMAX, (4, 3), rows_with((1, 2), -0.5), ValueError, r"-0.5 at \[1, 2\]"),
    (SOFTMAX, (4, 3), rows_with((1, 2), np.nan), ValueError, r"nan at \[1, 2\]"),
    (SOFTMAX, (4, 3), rows_with((3, 0), np.inf), ValueError, r"inf at \[3, 0\]"),
    (SOFTMAX, (4, 3), rows_with((2,), 0.0), ValueError, r"0.0 at \[2\]"),
    (SOFTMAX, (4,), FOUR, ShapeError, "classes"),
    (SOFTMAX, (4, 1), FOUR, ShapeError, r"\(4, 1\).*SigmoidCrossEntropy"),
    (SOFTMAX, (4, 1, 2), np.ones((4, 1, 2)), ShapeError, "2 classes"),
    (SOFTMAX, (0, 3), np.zeros(0, int), ShapeError, r"\(0, 3\)"),
    (SIGMOID, (4, 3), np.zeros((4, 2)), ShapeError, r"\(4, 3\), received \(4, 2\)"),
    (SIGMOID, (4, 3), np.zeros((4, 3), np.float32), TypeError, "float64, received float32"),
    (SIGMOID, (4, 3), rows_with((0, 1), 1.5), ValueError, r"1.5 at \[0, 1\]"),
    (SIGMOID, (4, 3), rows_with((3, 1), np.nan), ValueError, r"nan at \[3, 1\]"),
    (loss.SquaredError(), (4, 3), np.zeros(4), ShapeError, r"\(4, 3\), received \(4,\)"),
    (loss.SquaredError(), (4, 3), np.zeros((4, 3), int), TypeError, "int64"),
    (loss.Hinge(), (4, 3), np.zeros((4, 3)), ValueError, r"-1 or 1.*0\.0 at \[0, 0\]"),
    (loss.KLDivergence(), (4, 3), np.full((4, 3), 0.5), ValueError, "1\\.5"),
    (loss.CosineSimilarity(), (4,), np.zeros(4), ShapeError, r"\(4,\)"),
    (loss.Huber(), (4, 3), np.zeros((4, 1)), ShapeError, r"\(4, 1\)"),
    (Quartic(), (4, 3), np.zeros((5, 3)), ShapeError, "Quartic.*4 targets"),
]


@pytest.mark.parametrize(
    ("made", "x_shape", "target", "error", "wanted"), BAD, ids=[f"{row[0].__class__.__name__} {row[4]}" for row in BAD]
)
@pytest.mark.parametrize("convert", [np.asarray, tensor.from_numpy], ids=["host", "tensor"])
def test_targets_that_do_not_fit_are_refused_before_anything_runs(made, x_shape, target, error, wanted, convert):
    with pytest.raises(error, match=wanted):
        made.check(x_shape, np.dtype(np.float64), convert(target))
    x, operations = tensor.zeros(x_shape, np.float64), []
    with device.cpu().watch(operations.append), pytest.raises(error, match=wanted):
        made.forward(True, x, convert(target))
    assert not operations
    with pytest.raises(GraphError):
        made.backward()


def test_check_lets_good_targets_through():
    for case in CASES.values():
        made = case.make()
        made.check(case.x.shape, case.x.dtype, case.y)
        made.check(case.x.shape, case.x.dtype, to_tensor(case.y))


def test_scores_must_be_floats():
    with pytest.raises(TypeError, match="int32"):
        loss.SoftmaxCrossEntropy().forward(False, tensor.zeros((2, 3), np.int32), np.array([0, 1]))


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_huber_delta(delta):
    with pytest.raises(ValueError, match="Huber delta"):
        loss.Huber(delta)
