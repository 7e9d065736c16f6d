"""The form of a user's own operation: what its class states, and its kernels, stated as the interface's are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import DType
from singa_lite.common.checks import check_choice
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature
from singa_lite.kernels.own_call import Piece
from singa_lite.tensor import Shape, Tensor, checked_dtype, checked_shape

Lifespan = Literal["operation", "backward", "step"]
LIFESPANS: tuple[str, ...] = get_args(Lifespan)

#: Before the name of a tensor: the derivative by it.
D = "d"
#: Before the name of an input: the function that makes the derivative by it.
DERIVATIVE = "derivative_"


class Output:
    """The shape and dtype of a result of a `Function`. dtype: None for that of the first input of floats. ShapeError,
    TypeError.

    >>> output = autograd.Output((2, 3), "float64")
    >>> output.shape, output.dtype
    ((2, 3), dtype('float64'))
    """

    def __init__(self, shape: Sequence[int], dtype: DTypeLike | None = None) -> None:
        self.shape = checked_shape("Output", shape)
        self.dtype = None if dtype is None else checked_dtype("Output", dtype)


class Scratch:
    """The shape, dtype and lifespan of memory that a `Function` wants beside its inputs and results. It is planned as
    all else is.

    lifespan: "operation": while one of its functions runs, each has its own, whose values are whatever the memory held;
    "backward": `forward` writes it, derivatives read it; "step": from the first call of this object in a step to the
    last use of it there, shared by all calls: zeros at first, and then what the call before left there.
    dtype: as of `Output`. ShapeError, TypeError, ValueError for bad ones.

    >>> scratch = autograd.Scratch((2, 3), bool, "backward")
    >>> scratch.shape, scratch.lifespan
    ((2, 3), 'backward')
    """

    def __init__(self, shape: Sequence[int], dtype: DTypeLike | None = None, lifespan: Lifespan = "operation") -> None:
        self.shape = checked_shape("Scratch", shape)
        self.dtype = None if dtype is None else checked_dtype("Scratch", dtype)
        self.lifespan = check_choice("Scratch lifespan", lifespan, LIFESPANS)


class Form(NamedTuple):
    """Shape and dtype of an input, as `makes` is given it."""

    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)


class CallTensors(NamedTuple):
    """The tensors of one call by name: its outputs, and its scratch by lifespan."""

    outputs: dict[str, Form]
    scratch: dict[str, dict[str, Form]]


@dataclass(frozen=True)
class Statement:
    """The statement that a class makes by the names of its functions' arguments.

    name: of the class; inputs: arguments of `makes`, in order; forward: those of `forward`; derivatives: {input: those
    of the function that makes the derivative by it}.
    """

    name: str
    inputs: tuple[str, ...]
    forward: tuple[str, ...]
    derivatives: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, function: type, base: type) -> Statement:
        """That of a subclass of `base`, read once. TypeError where a function is missing or takes what none may."""
        name = function.__qualname__
        for needed in ("makes", "forward"):
            if getattr(function, needed) is getattr(base, needed):
                raise TypeError(f"{name}: wanted a class with a function {needed!r}, received one without")
        inputs = arguments(f"{name}.makes", function.makes)  # type: ignore[attr-defined]
        if not inputs:
            raise TypeError(f"{name}.makes: wanted an input at least, on whose device the operation is, received none")
        forward = arguments(f"{name}.forward", function.forward)  # type: ignore[attr-defined]
        found = {
            member.removeprefix(DERIVATIVE): arguments(f"{name}.{member}", getattr(function, member))
            for member in dir(function)
            if member.startswith(DERIVATIVE)
        }
        for of in found.keys() - set(inputs):
            raise TypeError(
                f"{name}.{DERIVATIVE}{of}: wanted the derivative by one of {inputs}, received one by {of!r}"
            )
        return cls(name, inputs, forward, found)

    def checked(self, made: object, given: Sequence[Tensor]) -> CallTensors:
        """What `makes` returned for these inputs. TypeError unless it is of `Output` and `Scratch` by name."""
        where = f"{self.name}.makes"
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            raise TypeError(f"{where}: wanted a dict of Output and Scratch by name, received {made!r:.80}")
        outputs: dict[str, Form] = {}
        scratch: dict[str, dict[str, Form]] = {lifespan: {} for lifespan in LIFESPANS}
        for name, stated in made.items():
            if not isinstance(stated, Output | Scratch):
                raise TypeError(f"{where}: wanted an Output or a Scratch as {name!r}, received {stated!r:.80}")
            form = Form(stated.shape, _main_dtype(given) if stated.dtype is None else stated.dtype)
            (outputs if isinstance(stated, Output) else scratch[stated.lifespan])[name] = form
        if not outputs:
            raise TypeError(f"{where}: wanted an Output at least, received {sorted(made) or 'nothing'}")
        names, derivatives = [*self.inputs, *made], [D + name for name in (*self.inputs, *outputs)]
        double = {name for name in names if names.count(name) > 1 or name in derivatives}
        if double:
            raise TypeError(f"{self.name}: wanted names of its own for each tensor, received {sorted(double)} twice")
        return CallTensors(outputs, scratch)


def arguments(where: str, function: Callable[..., object]) -> tuple[str, ...]:
    """Names of a method's arguments behind self. TypeError for others than plain ones without a default."""
    if not inspect.isfunction(function):
        raise TypeError(f"{where}: wanted a plain method, received {type(function).__name__}")
    _, *found = inspect.signature(function).parameters.values()
    for one in found:
        if one.kind is not one.POSITIONAL_OR_KEYWORD or one.default is not one.empty:
            raise TypeError(f"{where}: wanted plain arguments that name tensors, received {str(one)!r}")
    return tuple(one.name for one in found)


def _main_dtype(given: Iterable[Tensor]) -> DType:
    """Of the first input of floats, else of the first one, else float32."""
    dtypes = [t.dtype for t in given]
    floats = [dtype for dtype in dtypes if dtype.kind not in "iub"]
    return (floats or dtypes or [np.dtype(np.float32)])[0]


class OwnKernel(NamedTuple):
    """One function of a class. signature: as the plan knows it; method: its name; scratch: its temporaries."""

    signature: Signature
    method: str
    scratch: tuple[Piece, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the tensors that it may write."""
        pairs = zip(self.signature.tensors, self.signature.roles, strict=True)
        return tuple(name for name, role in pairs if role != "Read")


class Kernels:
    """Those of one class. They are there as long as it is.

    overwrites: pairs of what is written and what it may be written over; repeatable: whether calls may be done again.
    """

    def __init__(self, statement: Statement, overwrites: object, repeatable: bool) -> None:
        self._statement = statement
        self._overwrites = checked_overwrites(statement.name, overwrites)
        self._repeatable = repeatable
        self._signatures: dict[tuple[object, ...], Signature] = {}

    def forward(self, made: CallTensors) -> OwnKernel:
        """That of `forward`. TypeError where it takes what there is not, or does not take what it must write."""
        roles = dict.fromkeys(self._statement.inputs, "Read")
        roles |= dict.fromkeys([*made.outputs, *made.scratch["backward"]], "Write")
        needed = [*made.outputs, *made.scratch["backward"]]
        self._check_overwrites(made)
        return self._kernel("forward", self._statement.forward, roles, made, needed)

    def derivative(self, of: str, made: CallTensors) -> OwnKernel:
        """That of the derivative by an input, which the class has."""
        roles = dict.fromkeys([*self._statement.inputs, *made.outputs, *made.scratch["backward"]], "Read")
        roles |= {D + name: "Read" for name in made.outputs} | {D + of: "Write"}
        return self._kernel(DERIVATIVE + of, self._statement.derivatives[of], roles, made, [D + of])

    def _kernel(
        self, method: str, arguments: tuple[str, ...], roles: dict[str, str], made: CallTensors, needed: list[str]
    ) -> OwnKernel:
        where = f"{self._statement.name}.{method}"
        roles |= dict.fromkeys(made.scratch["step"], "Update")
        temporaries = made.scratch["operation"]
        for name in arguments:
            if name not in roles and name not in temporaries:
                known = ", ".join([*roles, *temporaries])
                raise TypeError(f"{where}: wanted arguments among {known}, received {name!r}")
        for name in needed:
            if name not in arguments:
                raise TypeError(
                    f"{where}: wanted {name!r}, which it has to write, among its arguments, received {arguments}"
                )
        tensors = tuple(name for name in arguments if name in roles)
        pieces = tuple(Piece(name, *temporaries[name]) for name in arguments if name in temporaries)
        return OwnKernel(self._signature(method, tensors, tuple(roles[t] for t in tensors), made), method, pieces)

    def _check_overwrites(self, made: CallTensors) -> None:
        """TypeError for a pair of which a name stands for nothing."""
        inputs, results = self._statement.inputs, [*made.outputs, *made.scratch["backward"]]
        written = [*results, *(D + name for name in inputs)]
        read = [*inputs, *results, *(D + name for name in made.outputs)]
        for pair in self._overwrites:
            for name, known in zip(pair, (written, read), strict=True):
                if name not in known:
                    where = f"{self._statement.name}.overwrites {pair}"
                    raise TypeError(f"{where}: wanted one of {', '.join(known)}, received {name!r}")

    def _signature(self, method: str, tensors: tuple[str, ...], roles: tuple[str, ...], made: CallTensors) -> Signature:
        once = not self._repeatable or bool(made.scratch["step"])
        key = method, tensors, roles, once, *made.outputs
        found = self._signatures.get(key)
        if found is not None:
            return found
        role_of = dict(zip(tensors, roles, strict=True))
        overwrites: dict[str, tuple[str, ...]] = {}
        for written, over in self._overwrites:
            if role_of.get(written) == "Write" and role_of.get(over) == "Read":
                overwrites[written] = (*overwrites.get(written, ()), over)
        numbers = [*self._statement.inputs, *made.outputs]
        facts = Facts(strides_matter=True, once=once, activations=(*numbers, *(D + name for name in numbers)))
        name = SIGNATURES.own_name(f"{self._statement.name}.{method}")
        signature = Signature(name, tensors, roles, frozenset(), ("call",), overwrites, facts, "own")
        SIGNATURES.enter_own(signature)
        self._signatures[key] = signature
        return signature


def checked_overwrites(name: str, given: object) -> tuple[tuple[str, str], ...]:
    """The pairs. TypeError for what is none."""
    if not isinstance(given, tuple | list) or not all(map(_is_pair, given)):
        raise TypeError(
            f"{name}.overwrites: wanted pairs such as (('y', 'x'),), what is written and what it may be written over, "
            f"received {given!r:.80}"
        )
    return tuple((written, over) for written, over in given)


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(name, str) for name in given)
