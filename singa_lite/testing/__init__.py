"""For tests of users' own layers and operations: gradients against central differences, and a Function's promises."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.common.checks import finite_above_zero
from singa_lite.layer.layer import Layer
from singa_lite.tensor import Tensor
from singa_lite.testing.function import Checked as Checked
from singa_lite.testing.function import check_function as check_function
from singa_lite.testing.gradients import STEP, TOLERANCE, Subject, compare
from singa_lite.testing.gradients import CheckError as CheckError
from singa_lite.testing.gradients import Compared as Compared


def check_gradients(
    function: Callable[..., object] | Layer,
    *inputs: object,
    parameters: dict[str, Tensor] | None = None,
    training: bool = True,
    step: float = STEP,
    tolerance: float = TOLERANCE,
) -> list[Compared]:
    """Compares gradients that the tape gives for a function or a layer with central differences, in float64 on a CPU.

    function: a `Function`, anything that takes tensors and gives one or several, or a layer that is in no net yet,
    whose parameters are checked as well. It must give the same from the same; a layer's state is put back each time.
    inputs: arrays or tensors; floats are converted to float64 and checked, integers are handed on. Give unequal extents
    and no values at a kink. parameters: further float64 tensors with `stores_grad`, by name, that the function goes by.
    training: what a layer is told. step: how far each element is moved, both ways; it costs two calls for each.
    tolerance: the largest difference, as a part of the gradient's largest element. Returns a row for each tensor.
    CheckError names those that are off, with the element; also where the outputs hardly depend on a tensor, which
    proves nothing. TypeError, ValueError for other arguments.

    >>> [row.name for row in testing.check_gradients(layers.Dense("dense", 3), np.array([[0.5, -1.5]]))]
    ['input 0', 'weight', 'bias']
    """
    step, tolerance = finite_above_zero("step", step), finite_above_zero("tolerance", tolerance)
    subject = Subject("check_gradients", function, inputs, parameters, training)
    trained = subject.trained
    if not trained:
        raise TypeError("check_gradients: wanted an input of floats or a parameter at least, received none")
    return compare(subject.call, list(trained.values()), list(trained), step, tolerance)
