"""Users' own operations, for tests of how these are recorded, planned and checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, Layer, autograd, device, layers, optimizer
from singa_lite.autograd import Output, Scratch


class Shrink(autograd.Function):
    """y = sign(x) max(|x| - threshold, 0)."""

    overwrites = (("y", "x"), ("dx", "dy"))

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def makes(self, x: Any) -> dict[str, Any]:
        return {"y": Output(x.shape), "kept": Scratch(x.shape, bool, "backward"), "size": Scratch(x.shape)}

    def forward(self, x: Any, y: Any, kept: Any, size: Any) -> None:
        np.abs(x, out=size)
        np.greater(size, self.threshold, out=kept)
        size -= self.threshold
        np.maximum(size, 0, out=size)
        np.copysign(size, x, out=y)

    def derivative_x(self, dy: Any, kept: Any, dx: Any) -> None:
        np.multiply(dy, kept, out=dx)


class Noisy(Shrink):
    """One that says that it may not be done again."""

    repeatable = False


class SumAndProduct(autograd.Function):
    """(a + b, a b), of which a takes part in the derivative by b, and the other way round."""

    def makes(self, a: Any, b: Any) -> dict[str, Any]:
        return {"total": Output(a.shape), "product": Output(a.shape)}

    def forward(self, a: Any, b: Any, total: Any, product: Any) -> None:
        np.add(a, b, out=total)
        np.multiply(a, b, out=product)

    def derivative_a(self, dtotal: Any, dproduct: Any, b: Any, da: Any) -> None:
        np.multiply(dproduct, b, out=da)
        da += dtotal

    def derivative_b(self, dtotal: Any, dproduct: Any, a: Any, db: Any) -> None:
        np.multiply(dproduct, a, out=db)
        db += dtotal


class Counted(autograd.Function):
    """y = x + the number of this object's calls before it in the step."""

    def makes(self, x: Any) -> dict[str, Any]:
        return {"y": Output(x.shape), "calls": Scratch((1,), "int64", "step")}

    def forward(self, x: Any, y: Any, calls: Any) -> None:
        np.add(x, calls, out=y)
        calls += 1

    def derivative_x(self, dy: Any, dx: Any) -> None:
        dx[...] = dy


class Twice(autograd.Function):
    """y = 2 x."""

    def makes(self, x: Any) -> dict[str, Any]:
        return {"y": Output(x.shape)}

    def forward(self, x: Any, y: Any) -> None:
        np.multiply(x, 2, out=y)

    def derivative_x(self, dy: Any, dx: Any) -> None:
        np.multiply(dy, 2, out=dx)


def wrong(**members: Any) -> autograd.Function:
    """A `Twice` with these members in the place of its own."""
    return type("Wrong", (Twice,), members)()


class FunctionLayer(Layer):
    """A layer that applies a function to what it is given."""

    def __init__(self, name: str, function: autograd.Function) -> None:
        super().__init__(name)
        self.function = function

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def forward(self, training: bool, x: Any) -> Any:
        return self.function(x)


def net_of(
    function: autograd.Function, on: Any = None, depth: int = 3, lr: float = 0.1, **compiling: Any
) -> FeedForwardNet:
    """Dense layers with the function behind each but the last."""
    net = FeedForwardNet("mse", device=on or device.new_cpu(), seed=1)
    for number in range(depth):
        options = {} if number else {"input_sample_shape": (7,)}
        net.add(layers.Dense(f"dense{number}", 24, **options))
        net.add(FunctionLayer(f"own{number}", function))
    net.add(layers.Dense("out", 3))
    net.compile(optimizer.SGD(lr), **compiling)
    return net


def losses(net: FeedForwardNet, steps: int = 4) -> list[float]:
    """Of some steps over one batch."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(11, 7)).astype("f"), rng.normal(size=(11, 3)).astype("f")
    return [float(net.train_one_batch(x, y)[0]) for _ in range(steps)]
