"""Checks of a net, its objective and its optimizer together, when the net is compiled and before any batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Protocol, TypeVar

import numpy as np

from singa_lite.common import threads
from singa_lite.common.array_types import DType
from singa_lite.common.checks import flag, kind_of, one_of, whole
from singa_lite.common.notice import warn
from singa_lite.common.sizes import budget_size, memory_size
from singa_lite.device import Device
from singa_lite.errors import GraphError
from singa_lite.graph import ORDERS
from singa_lite.layer import Layer, Node
from singa_lite.loss import Loss
from singa_lite.memory.out_of_memory import in_words
from singa_lite.optimizer import Optimizer, precision, state_dtype
from singa_lite.plan_rows.memory_classes import CLASSES
from singa_lite.rewriting import Rule
from singa_lite.training.objective import Objective
from singa_lite.training.ranks import Ranks
from singa_lite.traversal.freezing import Freeze, freezing


class Compiled(Protocol):
    """What is asked here of a net."""

    optimizer: Optimizer | None
    device: Device
    compiled_as: dict[str, object]


Net = TypeVar("Net", bound=Compiled)


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
        hint = ", such as optimizer.SGD(lr=0.1) or optimizer.Adam()" if isinstance(given, str) else hint
        raise TypeError(f"compile: wanted an Optimizer{hint}, received {kind_of(given)}")


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


def order_of(
    order: object, workers: float, graph: bool, budget: int | None, device: Device, where: str = "compile"
) -> tuple[str, int]:
    """In which order a recorded step runs, and how many of its operations at the same time.

    budget: the memory budget. TypeError or ValueError for what is neither, or where it would do nothing.
    """
    wanted, count = one_of(f"{where} order", order, ORDERS), whole(f"{where} workers", workers, 1)
    if wanted == "recorded":
        if count > 1:
            raise ValueError(f"{where} workers: wanted order='dependencies' beside it, received {count} alone")
        return wanted, count
    if not graph:
        raise ValueError(
            f"{where} order='dependencies': wanted graph=True, as only recorded steps have orders, received False"
        )
    if budget is not None:
        raise ValueError(
            f"{where} order='dependencies': wanted no memory_budget, as what is made again within one wants one order, "
            f"received {in_words(budget)}"
        )
    if count > 1 and device.runtime.link.beside:
        raise ValueError(
            f"{where} workers: wanted 1 on a GPU, whose operations run by themselves, received {count} on {device.name}"
        )
    if count > threads.threads():
        raise ValueError(
            f"{where} workers: wanted at most {threads.threads()}, the threads of all operations "
            f"(SINGA_LITE_THREADS), received {count}"
        )
    return wanted, count


def limits(given: object, graph: bool) -> dict[str, int]:
    """{class of `plan.by_class`: bytes}. TypeError or ValueError for no such thing, or without recorded steps."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"compile limits: wanted {{class of bytes: size}}, received {type(given).__name__}")
    if given and not graph:
        raise ValueError("compile limits: wanted graph=True, as they are kept by planning recorded steps")
    return {
        one_of("compile limits", name, CLASSES): memory_size(f"compile limits {name!r}", size)
        for name, size in given.items()
    }


def parallel_of(
    given: object,
    options: Mapping[str, object],
    device: Device,
    objective: Objective | None,
    optimizer: Optimizer,
    dtype: DType,
) -> Ranks | None:
    """The processes that train together, None for this one alone.

    options: of `compile`. TypeError for what is none, ValueError for options that several processes cannot do,
    GraphError for losses that are no mean over samples.
    """
    if given is None:
        return None
    if not isinstance(given, Ranks):
        raise TypeError(f"compile parallel: wanted parallel.mpi(), received {given!r:.100}")
    if given.size > 1:
        _check_usual("compile parallel", options, _OF_ONE_PROCESS)
        given.check_device("compile parallel", device)
        if given.sync and options["precision"] != "float32":
            raise ValueError(
                f"compile parallel: wanted precision='float32' beside sync=True, received {options['precision']!r}"
            )
        if given.compress is not None and dtype != np.float32:
            raise ValueError(f"compile parallel: wanted a net in float32 beside compress, received one in {dtype}")
        if given.shard is not None:
            _check_elementwise(options["state_dtype"], optimizer)
        _check_means({} if objective is None else objective.losses)
    return given


def check_parallel_step(ranks: Ranks, objective: Objective, optimizer: Optimizer) -> None:
    """The errors of `compile` for a loss, or settings of the optimizer, that were set since."""
    if ranks.shard is not None:
        _check_elementwise(optimizer.state_dtype, optimizer)
    _check_means(objective.losses)


def _check_elementwise(state_dtype: object, optimizer: Optimizer) -> None:
    """ValueError for updates that a part of a parameter cannot have by itself."""
    if state_dtype is not None:
        raise ValueError(f"compile parallel: wanted no state_dtype beside shard='state', received {state_dtype!r}")
    if any(rule.constraint is not None for rule in optimizer.rules):
        raise ValueError("compile parallel: wanted an optimizer without constraints beside shard='state', received one")


def _check_means(losses: Mapping[str, Loss]) -> None:
    """GraphError for losses whose mean over several processes cannot be made of each one's."""
    for name, loss in losses.items():
        if loss.of_whole_batch and (len(losses) > 1 or not loss.is_counted):
            raise GraphError(
                f"compile parallel: wanted losses that take each sample by itself, received {type(loss).__name__} of "
                f"output {name!r}, whose values go by the whole batch"
                + (", as with ignore_index, beside other outputs" if len(losses) > 1 else "")
            )


def rules(given: object, graph: bool, device: Device) -> tuple[Rule, ...]:
    """Rules of different names, proved for the device. TypeError or ValueError for what is none, or without recorded
    steps; RuleError for one that does not hold there.
    """
    if given is None:
        return ()
    if isinstance(given, Rule | str | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"compile rules: wanted a list of rewriting.Rule, received {type(given).__name__}")
    found = tuple(given)
    for one in found:
        if not isinstance(one, Rule):
            raise TypeError(f"compile rules: wanted a list of rewriting.Rule, received {one!r:.100} in it")
    if found and not graph:
        raise ValueError("compile rules: wanted graph=True, as only recorded steps are rewritten, received False")
    names = [rule.name for rule in found]
    if len(set(names)) < len(names):
        raise ValueError(f"compile rules: wanted a name of its own for each, received {names}")
    for rule in found:
        rule.on(device)
    return found


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
    device.check_bytes(f"{where} budget_profile, which times calls")
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


#: Options of `compile` that a step of the user's own leaves no use for, and their usual values.
_OF_BUILT_IN = {
    **{"loss_weights": None, "freeze": None, "micro_batches": 1, "accumulate": 1, "loss_scale": None},
    **{"keep": None, "limits": None},
}
#: Options that several processes cannot do together, and their usual values.
_OF_ONE_PROCESS = {
    "step": None,
    "nets": None,
    "offload": None,
    "budget_profile": False,
    "order": "recorded",
    "workers": 1,
}
#: The same of other nets that it trains: their own steps, whose options they are, are never done.
_OF_OTHERS = {
    "memory_budget": None,
    "order": "recorded",
    "workers": 1,
    "offload": None,
    "precision": "float32",
    "step": None,
    "on_nan": "fit",
    **_OF_BUILT_IN,
}


def own_step(net: Net, given: Mapping[str, object], loss: object, metric: object) -> dict[str, Net]:
    """The other nets that a step of the user's own trains, by name. given: the options of `compile`.

    TypeError, ValueError or GraphError for options that such a step would ignore, and for nets that it cannot train.
    """
    if "step" not in given:
        if "nets" in given:
            raise ValueError("compile nets: wanted step= beside it, the function that trains them, received none")
        return {}
    if not callable(given["step"]):
        raise TypeError(f"compile step: wanted a function step(net, call), received {given['step']!r:.100}")
    for name, value in {"loss": loss, "metric": metric}.items():
        if value is not None:
            raise ValueError(f"compile step: wanted no {name} beside it, as the step computes its own, received one")
    _check_usual("compile step", given, _OF_BUILT_IN)
    if given["precision"] == "float16":
        raise ValueError('compile step: wanted precision "float32", "bfloat16" or "tf32", whose losses need no scale')
    nets = given.get("nets", {})
    if not isinstance(nets, Mapping):
        raise TypeError(f"compile nets: wanted {{name: net}}, received {type(nets).__name__}")
    for name, other in nets.items():
        _check_other(name, net, other)
    return dict(nets)


def _check_usual(where: str, given: Mapping[str, object], usual: Mapping[str, object]) -> None:
    for name, value in usual.items():
        if given.get(name, value) != value:
            raise ValueError(
                f"{where}: wanted {name}={value!r}, which it would not use otherwise, received {given[name]!r}"
            )


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
    _check_usual(where, other.compiled_as, _OF_OTHERS)
