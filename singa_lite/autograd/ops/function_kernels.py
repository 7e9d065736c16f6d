"""The kernels of a user's own operation: one for `forward`, one for each derivative, stated as the interface's are."""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.autograd.ops.function_form import DERIVATIVE, CallTensors, D, Statement
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature
from singa_lite.kernels.own_call import Piece


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
    pairs = [pair for pair in given if _is_pair(pair)] if isinstance(given, tuple | list) else []
    if not isinstance(given, tuple | list) or len(pairs) < len(given):
        raise TypeError(
            f"{name}.overwrites: wanted pairs such as (('y', 'x'),), what is written and what it may be written over, "
            f"received {given!r:.80}"
        )
    return tuple((written, over) for written, over in pairs)


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(name, str) for name in given)
