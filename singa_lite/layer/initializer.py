"""Initializers: how a parameter gets its first values, on its own device and from its own random key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.checks import at_least_zero, finite, real
from singa_lite.common.errors import ShapeError
from singa_lite.common.keywords import check_keywords
from singa_lite.device import cpu, device_of
from singa_lite.tensor import Tensor, from_numpy, to_numpy


class Initializer(ABC):
    """The base of all initializers. A subclass gives `__call__`.

    >>> class Identity(initializer.Initializer):
    ...     def __call__(self, value, key, fan_in, fan_out):
    ...         value.copy_from_numpy(np.eye(*value.shape, dtype=value.dtype))
    >>> net = Sequential([layers.Dense(3, input_shape=(2,), weight_init=Identity())])
    >>> print(net.parameters()["dense/weight"])
    [[1. 0. 0.]
     [0. 1. 0.]]
    """

    def __new__(cls, *args: object, **named: object) -> Self:
        if named:
            check_keywords(cls.__name__, named, cls.__init__)
        return super().__new__(cls)

    @abstractmethod
    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        """Fill `value`, a float tensor of any shape.

        key: uint64 (3,) on the same device, (seed, stream, counter); equal keys give equal numbers. fan_in,
        fan_out: how many inputs an output element depends on, and the reverse; 0 where it makes no sense.
        """

    def check(self, value: Tensor, fan_in: int, fan_out: int) -> None:
        """Raise the errors of the call that follow from shape and fans alone, of a subclass that has some."""
        return None


#: What a layer takes: an initializer, its name in snake case ("he_normal"), or a number for all elements.
Spec = Initializer | str | float


@dataclass(frozen=True)
class Constant(Initializer):
    """Sets all elements to `value`.

    >>> net = Sequential([layers.Dense(3, input_shape=(2,), bias_init=initializer.Constant(0.5))])
    >>> print(net.parameters()["dense/bias"])
    [0.5 0.5 0.5]
    """

    value: float

    def __post_init__(self) -> None:
        finite("Constant value", self.value)

    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        value.device.run("fill", value, value=float(self.value))


@dataclass(frozen=True)
class Uniform(Initializer):
    """Draws uniform numbers in [low, high).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.Uniform(-1.0, 1.0))])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).max().round(2))
    1.0
    """

    low: float = -0.05
    high: float = 0.05

    def __post_init__(self) -> None:
        finite("Uniform low", self.low)
        finite("Uniform high", self.high)
        if self.low > self.high:
            raise ValueError(f"Uniform: wanted low at most high, received {self.low} and {self.high}")

    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        value.device.run("uniform", key, value, low=float(self.low), high=float(self.high))


@dataclass(frozen=True)
class Normal(Initializer):
    """Draws normal numbers. std: the standard deviation, 0 or more.

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.Normal(std=0.1))])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).std().round(2))
    0.1
    """

    mean: float = 0.0
    std: float = 0.05
    kernel: ClassVar[str] = "normal"

    def __post_init__(self) -> None:
        finite(f"{type(self).__name__} mean", self.mean)
        at_least_zero(f"{type(self).__name__} std", self.std)

    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        """On the host: a GPU draws other normal numbers, and equal seeds give equal weights on all devices."""
        numbers = {"mean": float(self.mean), "std": float(self.std)}
        if device_of(value).runtime.reads_host:
            return value.device.run(self.kernel, key, value, **numbers)
        drawn: Tensor = cpu().empty(value.shape, value.dtype)
        cpu().run(self.kernel, from_numpy(to_numpy(key), cpu()), drawn, **numbers)
        value.copy_from_numpy(to_numpy(drawn))


@dataclass(frozen=True)
class TruncatedNormal(Normal):
    """Draws normal numbers, those further than 2 `std` from the mean drawn again.

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.TruncatedNormal(std=0.1))])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).max().round(2))
    0.2
    """

    kernel: ClassVar[str] = "truncated_normal"


@dataclass(frozen=True)
class FanScaled(Initializer):
    """The base of the initializers that scale by fans: mean 0, standard deviation gain * sqrt(scale / fan).

    fan: fan_in, or with `average` (fan_in + fan_out) / 2. gain: what the activation that follows asks for.
    ValueError at the call if a fan that is needed is 0.

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.HeNormal())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).std().round(2))  # sqrt(2 / 200)
    0.1
    """

    gain: float = 1.0
    scale: ClassVar[float] = 1.0
    average: ClassVar[bool] = False
    normal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        finite(f"{type(self).__name__} gain", self.gain)

    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        std = self.std(fan_in, fan_out, value.name)
        numbers = Normal(0.0, std) if self.normal else Uniform(-sqrt(3) * std, sqrt(3) * std)
        numbers(value, key, fan_in, fan_out)

    def check(self, value: Tensor, fan_in: int, fan_out: int) -> None:
        """ValueError if a fan that is needed is 0."""
        self.std(fan_in, fan_out, value.name)

    def std(self, fan_in: int, fan_out: int, name: str = "") -> float:
        """The standard deviation for these fans; name: the parameter's, for the error."""
        needed = {"fan_in": fan_in, "fan_out": fan_out} if self.average else {"fan_in": fan_in}
        for fan, count in needed.items():
            if count < 1:
                raise ValueError(
                    f"{type(self).__name__} for {name or 'a tensor without a name'}: wanted a {fan} of at "
                    f"least 1, received {count}; state the fans, or take an initializer that needs none"
                )
        return abs(self.gain) * sqrt(self.scale * len(needed) / sum(needed.values()))


class GlorotUniform(FanScaled):
    """Draws uniform numbers in ±gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010, equation 16).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.GlorotUniform())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).max().round(2))  # sqrt(6 / 250)
    0.15
    """

    average = True


class GlorotNormal(FanScaled):
    """Draws normal numbers of std gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010, equation 12).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.GlorotNormal())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).std().round(2))  # sqrt(2 / 250)
    0.09
    """

    average = True
    normal = True


class HeUniform(FanScaled):
    """Draws uniform numbers in ±gain * sqrt(6 / fan_in), for ReLU (He and others, arXiv 1502.01852).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.HeUniform())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).max().round(2))  # sqrt(6 / 200)
    0.17
    """

    scale = 2.0


class HeNormal(FanScaled):
    """Draws normal numbers of std gain * sqrt(2 / fan_in), for ReLU (He and others, arXiv 1502.01852, equation 10).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.HeNormal())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).std().round(2))  # sqrt(2 / 200)
    0.1
    """

    scale = 2.0
    normal = True


class LecunUniform(FanScaled):
    """Draws uniform numbers in ±gain * sqrt(3 / fan_in) (LeCun and others, Efficient BackProp, 1998, section 4.6).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.LecunUniform())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).max().round(2))  # sqrt(3 / 200)
    0.12
    """


class LecunNormal(FanScaled):
    """Draws normal numbers of std gain * sqrt(1 / fan_in) (LeCun and others, Efficient BackProp, 1998, section 4.6).

    >>> net = Sequential([layers.Dense(50, input_shape=(200,), weight_init=initializer.LecunNormal())])
    >>> print(tensor.to_numpy(net.parameters()["dense/weight"]).std().round(2))  # sqrt(1 / 200)
    0.07
    """

    normal = True


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """Draws `gain` times a matrix (first axis, all others) with orthonormal rows or columns, whichever are fewer.

    Uniformly distributed among those matrices: Q of a normal matrix's QR, its signs those of R's diagonal
    (Saxe and others, arXiv 1312.6120; Mezzadri, arXiv math-ph/0609050). ShapeError at the call for fewer than two axes.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,), weight_init=initializer.Orthogonal())])
    >>> w = tensor.to_numpy(net.parameters()["dense/weight"])
    >>> np.allclose(w.T @ w, np.eye(3), atol=1e-5)
    True
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        finite(f"{type(self).__name__} gain", self.gain)

    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        self.check(value, fan_in, fan_out)
        Normal(0.0, 1.0)(value, key, fan_in, fan_out)
        rows, columns = value.shape[0], prod(value.shape[1:])
        matrix = to_numpy(value).reshape(rows, columns).astype(np.float64)
        q, r = np.linalg.qr(matrix if rows >= columns else matrix.T)
        q = self.gain * q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        value.copy_from_numpy((q if rows >= columns else q.T).reshape(value.shape))

    def check(self, value: Tensor, fan_in: int, fan_out: int) -> None:
        """ShapeError for a tensor of fewer than two axes."""
        if value.ndim < 2:
            raise ShapeError(f"Orthogonal: wanted two axes or more, received {value.name} {value.shape}")


@dataclass(frozen=True)
class UnitForget(Initializer):
    """Sets zeros, and 0.5 for the forget gate of an LSTM's bias, the second quarter: both biases add up to 1.

    Keras's unit_forget_bias. ShapeError at the call for a tensor of other than one axis of four equal parts.

    >>> net = Sequential([layers.Input((6, 3)), layers.LSTM("lstm", 2, bias_init=initializer.UnitForget())])
    >>> print(net.parameters()["lstm/bias_ih_l0"])
    [0.  0.  0.5 0.5 0.  0.  0.  0. ]
    """

    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        self.check(value, fan_in, fan_out)
        gates = np.zeros((4, value.shape[0] // 4))
        gates[1] = 0.5
        value.copy_from_numpy(gates.reshape(-1).astype(value.dtype))

    def check(self, value: Tensor, fan_in: int, fan_out: int) -> None:
        """ShapeError for another tensor than four gates."""
        if value.ndim != 1 or value.shape[0] % 4:
            raise ShapeError(f"UnitForget: wanted one axis of four equal parts, received {value.name} {value.shape}")


NAMES: dict[str, Initializer] = {
    "zeros": Constant(0.0),
    "ones": Constant(1.0),
    "uniform": Uniform(),
    "random_uniform": Uniform(),
    "normal": Normal(),
    "random_normal": Normal(),
    "truncated_normal": TruncatedNormal(),
    "glorot_uniform": GlorotUniform(),
    "glorot_normal": GlorotNormal(),
    "he_uniform": HeUniform(),
    "he_normal": HeNormal(),
    "lecun_uniform": LecunUniform(),
    "lecun_normal": LecunNormal(),
    "orthogonal": Orthogonal(),
    "unit_forget": UnitForget(),
}


def fill(spec: Spec, value: Tensor, key: NDArray[np.uint64], fan_in: int, fan_out: int) -> None:
    """Gives a tensor its first values, where it has bytes for them; the rest is as of `Initializer`.

    >>> value = tensor.zeros((2, 3))
    >>> initializer.fill("ones", value, np.array([7, 0, 0], "uint64"), fan_in=2, fan_out=3)
    >>> print(value)
    [[1. 1. 1.]
     [1. 1. 1.]]
    """
    initializer = get(spec)
    initializer.check(value, fan_in, fan_out)
    if not value.device.is_abstract:
        initializer(value, from_numpy(key, value.device), fan_in, fan_out)


def get(spec: Spec, where: str = "initializer") -> Initializer:
    """Returns the initializer that `spec` stands for. ValueError for an unknown name, TypeError for anything else.

    where: what an error begins with.

    >>> initializer.get("he_normal")
    HeNormal(gain=1.0)
    >>> initializer.get(0.5)
    Constant(value=0.5)
    """
    if isinstance(spec, Initializer):
        return spec
    if isinstance(spec, str):
        if spec not in NAMES:
            raise ValueError(f"{where}: wanted one of {', '.join(NAMES)}, received {spec!r}")
        return NAMES[spec]
    number = real(spec)
    if number is not None:
        return Constant(finite(where, number))
    hint = f"; perhaps {spec.__name__}()" if isinstance(spec, type) else ""
    raise TypeError(f"{where}: wanted an Initializer, a name or a number, received {spec!r}{hint}")
