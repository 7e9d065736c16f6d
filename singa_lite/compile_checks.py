"""Checks of a net, its objective and its optimizer together, when the net is compiled and before any batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from singa_lite.array_types import DType
from singa_lite.checks import flag
from singa_lite.device import Device
from singa_lite.errors import GraphError
from singa_lite.freezing import Freeze, freezing
from singa_lite.layer import Layer, Node
from singa_lite.memory.out_of_memory import in_words
from singa_lite.notice import warn
from singa_lite.optimizer import Optimizer, precision, state_dtype
from singa_lite.sizes import budget_size
from singa_lite.training.objective import Objective


def check(
    nodes: Sequence[Node], objective: Objective | None, optimizer: Optimizer, freeze: Freeze, dtype: DType
) -> None:
    """Raise GraphError or ValueError for what would fail, or go wrong silently, at the first batch.

    nodes: the layers in topological order; objective: None where there is no loss yet; freeze: as for `compile`.
    """
    optimizer.check_names([value.name for node in nodes for value in node.layer.parameters.values()])
    precision.check(optimizer, dtype)
    if freeze is not None:
        _check_freeze(nodes, [] if objective is None else objective.outputs, freeze)
    if objective is not None:
        _warn_of_applied_twice({node.layer.name: node for node in nodes}, objective)


def check_state_dtype(optimizer: Optimizer, given: str | None, dtype: DType) -> None:
    """TypeError or ValueError unless the optimizer can keep its state so, beside parameters of this dtype."""
    state_dtype.check(optimizer, given, dtype)


def offload_of(given: object, budget: int | None, device: Device) -> str:
    """Where values may be offloaded to, "" for nowhere. TypeError, ValueError or OSError for what cannot be.

    budget: the memory budget that it is to keep; device: that of the net.
    """
    if given is None:
        return ""
    if not isinstance(given, str | PathLike) or not isinstance(where := fspath(given), str):
        raise TypeError(f'compile offload: wanted "host" (on a GPU) or a folder (on a CPU), received {given!r}')
    if budget is None:
        raise ValueError(
            f"compile offload: wanted a memory_budget beside it, which it helps to keep, received {where!r}"
        )
    if not where:
        raise ValueError('compile offload: wanted "host" (on a GPU) or a folder (on a CPU), received no text')
    return offload_place(where, device)


def offload_place(where: str, device: Device) -> str:
    """See `Runtime.offload_place`. where: "" for nowhere."""
    return device.runtime.offload_place(where) if where else ""


def check_optimizer(given: object) -> None:
    """TypeError unless it is an optimizer."""
    if not isinstance(given, Optimizer):
        hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
        raise TypeError(f"compile: wanted an Optimizer{hint}, received {type(given).__name__}")


def budget(given: int | str | None, graph: bool, device: Device, where: str = "compile") -> int | None:
    """A memory_budget in bytes, None for none. TypeError or ValueError for what is no size, without recorded steps, or
    for one above the device's limit.
    """
    if given is None:
        return None
    nbytes, limit = budget_size(f"{where} memory_budget", given), device.pool.limit
    if not graph:
        raise ValueError(f"{where} memory_budget: wanted graph=True, as it is kept by planning recorded steps")
    if limit is not None and nbytes > limit:
        raise ValueError(
            f"{where} memory_budget: wanted at most the limit of device {device.name}, {in_words(limit)}, received "
            f"{in_words(nbytes)}; without a memory_budget the limit is kept to"
        )
    return nbytes


def profile(given: object, graph: bool, bound: int | None, device: Device, where: str = "compile") -> bool:
    """Whether costs are to be measured. TypeError or ValueError for what is no flag, or where it would do nothing.

    bound: the memory budget, or the device's limit.
    """
    if not flag(f"{where} budget_profile", given):
        return False
    if not graph:
        raise ValueError(f"{where} budget_profile: wanted graph=True, as only recorded steps are planned")
    if bound is None:
        raise ValueError(
            f"{where} budget_profile: wanted a memory_budget beside it, or a device with a limit, whose repeats it "
            f"helps to choose, received none on device {device.name}"
        )
    if device.runtime.link.beside:
        raise ValueError(
            f"{where} budget_profile: wanted a CPU, whose calls can be timed one by one, received device {device.name}"
        )
    return True


def _check_freeze(nodes: Sequence[Node], outputs: Sequence[str], freeze: Freeze) -> None:
    """GraphError where a loss stands before the layer up to which all is frozen, or where nothing is left to train."""
    layers = [node.layer for node in nodes]
    found = freezing(layers, freeze)
    frozen = [layer.name for layer in layers if layer.name in found.frozen]
    moving = set[str]()  # layers whose output goes by some layer that is not frozen
    for layer, sources in nodes:
        if layer.path not in found.passing or any(name in moving for name, _ in sources):
            moving.add(layer.name)
    for name in outputs:
        if name not in moving:
            raise GraphError(
                f"compile: wanted freeze= to leave a layer before output {name!r} that trains, received "
                f"{list(freeze or ())}"
            )
        if name in frozen:
            raise GraphError(
                f"compile: wanted freeze={freeze!r} with all outputs at this layer or after it, received output "
                f"{name!r} among the frozen layers {frozen}"
            )
    if not any(layer.own_parameters for layer in found.trained):
        raise GraphError(
            f"compile: wanted freeze={freeze!r} to leave a layer with parameters to train, received none in "
            f"{[layer.path for layer in found.trained]}"
        )


def _warn_of_applied_twice(nodes: Mapping[str, Node], objective: Objective) -> None:
    """Warn of a softmax or sigmoid before a loss that takes one itself."""
    for name, loss in objective.losses.items():
        before = _origin(nodes, name)
        if loss.applies and before.gives:
            warn(
                f"loss {type(loss).__name__} of output {name!r}: wanted raw scores, whose {loss.applies} it takes "
                f"itself, received the {before.gives} of layer {before.name!r}: leave that layer out",
                UserWarning,
            )


def _origin(nodes: Mapping[str, Node], name: str) -> Layer:
    """The layer that made the values which the layer of this name gives, perhaps under another shape."""
    node = nodes[name]
    while node.layer.keeps_values and node.sources:
        node = nodes[node.sources[0][0]]
    return node.layer
