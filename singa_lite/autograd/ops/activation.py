"""Activations, element by element, PReLU with its trained slopes, and softmax."""

from __future__ import annotations

from singa_lite.autograd.ops.op import KernelOp, Op, checked_tensor
from singa_lite.common.checks import axis_of, finite_above_zero
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class Activation(KernelOp):
    """y = kernel(x). from_output: the derivative takes y, so x may die; else it takes x."""

    def __init__(self, kernel: str, from_output: bool = True, **settings: float) -> None:
        super().__init__(kernel, **settings)
        self.from_output = from_output

    def forward(self, x: Tensor) -> Tensor:
        y = self.computed(self.kernel, x, **self.settings)
        self.save(y if self.from_output else x)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed(f"{self.kernel}_derivative", dys[0], self.kept(0), **self.settings)


def relu(x: Tensor) -> Tensor:
    """Returns max(x, 0), element by element.

    >>> print(autograd.relu(tensor.as_tensor([-1.5, 0.0, 2.0])))
    [0. 0. 2.]
    """
    return Activation("relu")(x)


def relu6(x: Tensor) -> Tensor:
    """Returns min(max(x, 0), 6), element by element.

    >>> print(autograd.relu6(tensor.as_tensor([-1.5, 2.0, 9.0])))
    [0. 2. 6.]
    """
    return Activation("relu6")(x)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """Returns x where x > 0, else slope * x, with slope above 0.

    >>> print(autograd.leaky_relu(tensor.as_tensor([-1.5, 2.0]), slope=0.1))
    [-0.15  2.  ]
    """
    return Activation("leaky_relu", slope=finite_above_zero("leaky_relu slope", slope))(x)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Returns x where x > 0, else alpha * (e**x - 1), with alpha above 0 (Clevert, arXiv 1511.07289).

    >>> print(autograd.elu(tensor.as_tensor([-1.5, 2.0])).round(3))
    [-0.777  2.   ]
    """
    return Activation("elu", alpha=finite_above_zero("elu alpha", alpha))(x)


def sigmoid(x: Tensor) -> Tensor:
    """Returns 1 / (1 + e**-x), element by element.

    >>> print(autograd.sigmoid(tensor.as_tensor([-1.5, 0.0, 2.0])).round(3))
    [0.182 0.5   0.881]
    """
    return Activation("sigmoid")(x)


def tanh(x: Tensor) -> Tensor:
    """Returns the hyperbolic tangent of x, element by element.

    >>> print(autograd.tanh(tensor.as_tensor([-1.5, 0.0, 2.0])).round(3))
    [-0.905  0.     0.964]
    """
    return Activation("tanh")(x)


def gelu(x: Tensor) -> Tensor:
    """Returns x * (1 + erf(x / sqrt 2)) / 2, the exact form of GELU (arXiv 1606.08415).

    >>> print(autograd.gelu(tensor.as_tensor([-1.5, 0.0, 2.0])).round(3))
    [-0.1    0.     1.954]
    """
    return Activation("gelu", from_output=False)(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """Returns GPT-2's approximation of GELU, x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2 (arXiv
    1606.08415).

    >>> print(autograd.gelu_tanh(tensor.as_tensor([-1.5, 0.0, 2.0])).round(3))
    [-0.1    0.     1.955]
    """
    return Activation("gelu_tanh", from_output=False)(x)


def silu(x: Tensor) -> Tensor:
    """Returns x * sigmoid(x), element by element.

    >>> print(autograd.silu(tensor.as_tensor([-1.5, 0.0, 2.0])).round(3))
    [-0.274  0.     1.762]
    """
    return Activation("silu", from_output=False)(x)


def softplus(x: Tensor) -> Tensor:
    """Returns log(1 + e**x), element by element.

    >>> print(autograd.softplus(tensor.as_tensor([-1.5, 0.0, 2.0])).round(3))
    [0.201 0.693 2.127]
    """
    return Activation("softplus")(x)


def softmax(x: Tensor, axis: int = 1) -> Tensor:
    """Returns e**x divided by its sum along `axis`, where axis 0 is the batch.

    >>> print(autograd.softmax(tensor.as_tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]])).round(3))
    [[0.09  0.245 0.665]
     [0.333 0.333 0.333]]
    """
    return Activation("softmax", axis=axis_of("softmax", axis, checked_tensor("softmax", x).shape))(x)


class PRelu(Op):
    """y = x where x > 0, else alpha * x. Only x is kept; its negative part is made again for alpha's gradient."""

    def forward(self, x: Tensor, alpha: Tensor) -> Tensor:
        pairs = zip(alpha.shape[::-1], x.shape[::-1], strict=False)
        if alpha.ndim > x.ndim or any(n not in (1, extent) for n, extent in pairs) or alpha.dtype != x.dtype:
            raise ShapeError(
                f"prelu: wanted alpha of a shape that broadcasts to x's, and its dtype, received {alpha.shape} "
                f"{alpha.dtype} for x {x.shape} {x.dtype}"
            )
        below, y = self._negated_below(x), self.empty_like(x)
        self.device.run("multiply", below, alpha, below)
        self.device.run("relu", x, y)
        self.device.run("subtract", y, below, y)
        self.shape = alpha.shape
        self.save(x, alpha if self.needs[0] else None)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self._by_x(dys[0]) if index == 0 else self._by_alpha(dys[0])

    def _negated_below(self, x: Tensor) -> Tensor:
        """max(-x, 0): for an infinite x too there is no difference of infinities."""
        below = self.computed("scale", x, alpha=-1.0, beta=0.0)
        self.device.run("relu", below, below)
        return below

    def _by_x(self, dy: Tensor) -> Tensor:
        """dy where x > 0, else alpha * dy, also where x is 0."""
        above = self.computed("relu_derivative", dy, self.kept(0))
        below = self.computed("subtract", dy, above)
        self.device.run("multiply", below, self.kept(1), below)
        self.device.run("add", above, below, above)
        return above

    def _by_alpha(self, dy: Tensor) -> Tensor:
        """The sum of dy * min(x, 0) over all that an alpha serves."""
        product = self._negated_below(self.kept(0))
        self.device.run("multiply", dy, product, product)
        padded = (1,) * (dy.ndim - len(self.shape)) + self.shape
        axes = tuple(axis for axis, extent in enumerate(padded) if extent != dy.shape[axis] or extent == 1)
        if not axes:  # an alpha for each element of one sample
            self.device.run("scale", product, product, alpha=-1.0, beta=0.0)
            return product
        total = self.device.empty(padded, dy.dtype)
        self.device.run("reduce_sum", product, total, axes=axes, alpha=-1.0)
        return total.view(self.shape)


def prelu(x: Tensor, alpha: Tensor) -> Tensor:
    """Returns x where x > 0, else alpha * x (He and others, arXiv 1502.01852). alpha: of a shape that broadcasts to
    x's.

    >>> print(autograd.prelu(tensor.as_tensor([[-1.5, 2.0], [3.0, -4.0]]), tensor.as_tensor([0.1, 0.5])))
    [[-0.15  2.  ]
     [ 3.   -2.  ]]
    """
    return PRelu()(x, alpha)
