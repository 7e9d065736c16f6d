"""Layer: parameters, state, setup and forward; backward comes from the tape."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from singa_lite import initializer
from singa_lite.autograd import cast
from singa_lite.errors import GraphError, ShapeError
from singa_lite.tensor import Shape, Tensor, from_numpy, full

SampleShape = Shape | list[Shape]


class Context(NamedTuple):
    """What a net gives its layers: where their tensors live, of which dtype, and the seed of their numbers."""

    device: Any
    dtype: np.dtype[Any]
    seed: int


class Layer:
    """Base of all layers. A subclass gives `setup` and `forward`:

    setup(*shapes) gets the sample shapes of the inputs (no batch axis), makes parameters with `add_parameter` and
    state with `add_state`, and returns the output's sample shape, or a list of them for several outputs.
    forward(training, *inputs) composes operations of `autograd`; it returns a Tensor, or a list of them.

    name: unique in its net, without "/"; input_sample_shape: the sample shape of the input, for a layer that has
    no source to take it from (a list of shapes for several inputs).
    """

    setup: Callable[..., SampleShape]
    forward: Callable[..., Any]

    def __init__(self, name: str, *, input_sample_shape: Sequence[Any] | None = None) -> None:
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"layer name: wanted a non-empty string without '/', received {name!r}")
        if not _is_unicode(name):
            raise ValueError(f"layer name: wanted Unicode text, received {name!r}")
        self.name = name
        self.input_sample_shapes = _checked_shapes(name, input_sample_shape)
        self.output_sample_shape: SampleShape | None = None
        self.parameters: dict[str, Tensor] = {}
        self.states: dict[str, Tensor] = {}
        self.context: Context | None = None
        self.shared_with: Layer | None = None
        #: What the layer's input is converted to, and its output has; None: the net's dtype.
        self.storage: np.dtype[Any] | None = None

    def share_parameters(self, other: Layer) -> Layer:
        """Use the parameters of `other`, a layer of the same kind and shapes, in the place of own ones.

        The parameters keep the other's names; their gradient is the sum over both layers and is yielded once.
        `other` must be in the net before this layer is added. Returns this layer.
        """
        if self.context is not None:
            raise GraphError(f"layer {self.name!r}: wanted share_parameters() before the layer is in a net")
        self.shared_with = other
        return self

    def prepare(self, shapes: Sequence[Shape], context: Context) -> None:
        """Called by the net, once the sample shapes of the inputs are known: makes parameters and state."""
        if self.shared_with is not None and self.shared_with.context is None:
            raise GraphError(
                f"layer {self.name!r} shares the parameters of {self.shared_with.name!r}, which is in no net yet"
            )
        self.context = context
        try:
            self.output_sample_shape = self.setup(*shapes)
            self._check_shared()
        except BaseException:
            self.reset()
            raise

    def reset(self) -> None:
        """Back to before `prepare`: no parameters, no state, no shape."""
        self.parameters, self.states = {}, {}
        self.context = self.output_sample_shape = None

    def add_parameter(
        self,
        name: str,
        shape: Sequence[int],
        init: initializer.Spec,
        fans: tuple[int, int] | None = None,
        layout: str = "",
    ) -> Tensor:
        """For `setup`: a trainable tensor called "<layer>/<name>".

        init: an Initializer, its name ("he_normal"), or a number; fans: (fan_in, fan_out) for those that use them.
        layout: "filters" for those of convolutions, which the device lays out as its kernels like best.
        """
        if self.shared_with is not None:
            tensor = self._shared(name, tuple(shape))
        else:
            context = self._placed()
            tensor = context.device.empty(shape, context.dtype, layout)
            tensor.name = f"{self.name}/{name}"
            tensor.stores_grad = True
            key = from_numpy(self.random_key(name), context.device)
            initializer.get(init)(tensor, key, *(fans or (0, 0)))
        self.parameters[name] = tensor
        return tensor

    def add_state(self, name: str, shape: Sequence[int], value: float = 0.0, dtype: DTypeLike | None = None) -> Tensor:
        """For `setup`: a tensor called "<layer>/<name>" that is kept and saved but not trained."""
        context = self._placed()
        tensor = full(shape, value, dtype or context.dtype, context.device)
        tensor.name = f"{self.name}/{name}"
        self.states[name] = tensor
        return tensor

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of inputs and outputs, once the layer is in a net."""
        return self.storage or self._placed().dtype

    def stored(self, name: str) -> Tensor:
        """For `forward`: the parameter of that name in the dtype of the inputs."""
        return cast(self.parameters[name], self.dtype)

    def random_key(self, name: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """uint64 (3,): seed of the net, stream of "<layer>/<name>", counter 0. Does not depend on other layers."""
        stream = zlib.crc32(f"{self.name}/{name}".encode())
        return np.array([self._placed().seed, stream, 0], np.uint64)

    def get_output_sample_shape(self) -> SampleShape:
        """The sample shape of the output (a list for several), once the layer is in a net and its inputs known."""
        if self.output_sample_shape is None:
            raise GraphError(f"layer {self.name!r}: wanted a layer whose input shapes are known, add it to a net")
        return self.output_sample_shape

    def param_names(self) -> list[str]:
        """Full names of the parameters, "<layer>/weight" and so on, once the layer is in a net."""
        self.get_output_sample_shape()
        return [tensor.name for tensor in self.parameters.values()]

    def param_values(self) -> list[Tensor]:
        """The parameters, in the order of `param_names`."""
        self.get_output_sample_shape()
        return list(self.parameters.values())

    def to_device(self, device: Any) -> None:
        """Move parameters and state."""
        context = self._placed()
        if self.shared_with is not None:  # it may come after this layer, and must have moved by then
            self.shared_with.to_device(device)
        for table in (self.parameters, self.states):
            for name, tensor in table.items():
                if self.shared_with is not None and table is self.parameters:
                    table[name] = self.shared_with.parameters[name]
                else:
                    table[name] = tensor.to_device(device)
        self.context = context._replace(device=device)

    def _placed(self) -> Context:
        if self.context is None:
            raise GraphError(f"layer {self.name!r}: wanted a layer that is in a net")
        return self.context

    def _shared(self, name: str, shape: Shape) -> Tensor:
        other = self.shared_with
        if other is None or name not in other.parameters or other.parameters[name].shape != shape:
            theirs = {} if other is None else {n: t.shape for n, t in other.parameters.items()}
            raise ShapeError(f"layer {self.name!r}: wanted to share {name!r} of shape {shape}, received {theirs}")
        return other.parameters[name]

    def _check_shared(self) -> None:
        other = self.shared_with
        if other is not None and self.parameters.keys() != other.parameters.keys():
            raise ShapeError(
                f"layer {self.name!r}: wanted to share {sorted(self.parameters)}, "
                f"but {other.name!r} has {sorted(other.parameters)}"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} -> {self.output_sample_shape}>"


def _checked_shapes(name: str, given: Sequence[Any] | None) -> list[Shape] | None:
    """A list of sample shapes from one shape, a list of shapes, or None."""
    if given is None:
        return None
    several = len(given) > 0 and all(isinstance(entry, Sequence) for entry in given)
    shapes = [tuple(entry) for entry in given] if several else [tuple(given)]
    for shape in shapes:
        if any(not isinstance(extent, int | np.integer) or extent < 1 for extent in shape):
            raise ShapeError(f"layer {name!r}: wanted an input_sample_shape of extents of at least 1, received {given}")
    return shapes


def _is_unicode(text: str) -> bool:
    """Whether all of it can be written down: Python's strings may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
