"""Options of `compile` that go with a step of the user's own, and other nets that such a step can train."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from singa_lite.common.errors import GraphError
from singa_lite.device import Device
from singa_lite.optimizer import Optimizer
from singa_lite.training.compile_options import CompileOptions, Trait, check_usual


class Compiled(Protocol):
    """What is asked here of a net."""

    optimizer: Optimizer | None
    device: Device

    @property
    def compiled_as(self) -> Mapping[str, object]: ...


Net = TypeVar("Net", bound=Compiled)


def other_nets(net: Net, options: CompileOptions, loss: object, metric: object) -> dict[str, Net]:
    """The other nets that a step of the user's own trains, by name.

    TypeError, ValueError or GraphError for options that such a step would ignore, and for nets that it cannot train.
    """
    if options.step is None:
        if options.nets is not None:
            raise ValueError("compile nets: wanted step= beside it, the function that trains them, received none")
        return {}
    if not callable(options.step):
        raise TypeError(f"compile step: wanted a function step(net, call), received {options.step!r:.100}")
    for name, value in {"loss": loss, "metric": metric}.items():
        if value is not None:
            raise ValueError(f"compile step: wanted no {name} beside it, as the step computes its own, received one")
    check_usual("compile step", options.given(), Trait.BUILT_IN)
    if options.precision == "float16":
        raise ValueError('compile step: wanted precision "float32", "bfloat16" or "tf32", whose losses need no scale')
    nets = {} if options.nets is None else options.nets
    if not isinstance(nets, Mapping):
        raise TypeError(f"compile nets: wanted {{name: net}}, received {type(nets).__name__}")
    for name, other in nets.items():
        _check_other(name, net, other)
    return dict(nets)


def _check_other(name: object, net: Compiled, other: object) -> None:
    where = f"compile nets: net {name!r}"
    if not isinstance(name, str) or not name or "/" in name:
        raise TypeError(f"compile nets: wanted names without '/', received {name!r}")
    if not isinstance(other, type(net)) or other is net:
        raise TypeError(f"{where}: wanted another net, received {'the net itself' if other is net else type(other)}")
    if other.optimizer is None or other.optimizer is net.optimizer:
        raise GraphError(f"{where}: wanted it compiled with an optimizer of its own first")
    if other.device is not net.device:
        raise GraphError(f"{where}: wanted it on {net.device.name}, as the net, received it on {other.device.name}")
    check_usual(where, other.compiled_as, Trait.OWN_STEPS)


def check_trains_no_other(where: str, nets: Collection[str]) -> None:
    """GraphError for a net whose step trains others too, which the step's function names itself."""
    if nets:
        raise GraphError(
            f"{where}: wanted a net whose step trains it alone, received one of compile(nets={[*nets]}), "
            "which the step would still train; save each net, and compile the copies with a step of theirs"
        )
