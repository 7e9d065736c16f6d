"""Options of recording and planning: each is checked, by the device and by the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from singa_lite.autograd.rewriting import Rule
from singa_lite.common import threads
from singa_lite.common.checks import check_choice, flag, goes_through, integer
from singa_lite.common.deleted_options import OFFLOAD_TO_FOLDER
from singa_lite.common.sizes import budget_size, memory_size
from singa_lite.compiler.report.plan_rows import CLASSES
from singa_lite.device import Device
from singa_lite.graph.graph import ORDERS
from singa_lite.layer.layer import Layer
from singa_lite.net.compile.precision import storage_by
from singa_lite.runtime.pool_numbers import in_words
from singa_lite.training.compile_options import CompileOptions
from singa_lite.training.step_options import StepOptions


def step_options_of(options: CompileOptions, layers: Sequence[Layer], device: Device) -> StepOptions:
    """The options, checked. layers: of the net, in topological order; device: the net's.

    TypeError, ValueError, OSError, RuleError or DeviceError for what cannot be, or would do nothing.
    """
    graph, fuse = flag("compile graph", options.graph), flag("compile fuse", options.fuse)
    most, found_rules = limits(options.limits, graph), rules(options.rules, graph, device)
    within = budget(options.memory_budget, graph, device)
    bound = device.pool.limit if graph and within is None else within
    offloading = offloads(options.offload, bound, device)
    order, workers = order_of(options.order, options.workers, graph, within, device)
    narrow = storage_by(options.precision, options.float32_layers, graph, layers, device)
    tf32 = options.precision == "tf32"
    return StepOptions(graph, fuse, within, offloading, narrow, order, workers, most, found_rules, tf32)


def check_move(how: StepOptions, to: Device) -> None:
    """The errors of `compile` where its options are not for the device that a net is to move to."""
    where = "to_device"
    budget(how.budget, how.graph, to, where)
    order_of(how.order, how.workers, how.graph, how.budget, to, where)
    if how.offloads:
        check_offloads(where, to)


def limits(given: object, graph: bool) -> dict[str, int]:
    """{class of `plan.by_class`: bytes}. TypeError or ValueError for no such thing, or without recorded steps."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"compile limits: wanted {{class of bytes: size}}, received {type(given).__name__}")
    if given and not graph:
        raise ValueError("compile limits: wanted graph=True, as they are kept by planning recorded steps")
    return {
        check_choice("compile limits", name, CLASSES): memory_size(f"compile limits {name!r}", size)
        for name, size in given.items()
    }


def rules(given: object, graph: bool, device: Device) -> tuple[Rule, ...]:
    """Rules of different names, proved for the device. TypeError or ValueError for what is none, or without recorded
    steps; RuleError for one that does not hold there.
    """
    if given is None:
        return ()
    if isinstance(given, Rule) or not goes_through(given):
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


def offloads(given: object, budget: int | None, device: Device) -> bool:
    """Whether values may be offloaded to the host. TypeError or ValueError for what cannot be.

    budget: the memory budget that it is to keep; device: that of the net.
    """
    if given is None:
        return False
    if not isinstance(given, str | PathLike):
        raise TypeError(f'compile offload: wanted "host", received {given!r}')
    if given != "host":
        raise ValueError(OFFLOAD_TO_FOLDER.message(given))
    if budget is None:
        raise ValueError("compile offload: wanted a memory_budget beside it, which it helps to keep, received 'host'")
    check_offloads("compile", device)
    return True


def check_offloads(where: str, device: Device) -> None:
    """ValueError for a device whose values cannot be offloaded to the host."""
    if device.runtime.host_link is None:
        raise ValueError(
            f"{where} offload: wanted a GPU, as a CPU's memory is the host's own, which the budget bounds, received "
            f"device {device.name}"
        )


def order_of(
    order: object, workers: float, graph: bool, budget: int | None, device: Device, where: str = "compile"
) -> tuple[str, int]:
    """In which order a recorded step runs, and how many of its operations at the same time.

    budget: the memory budget. TypeError or ValueError for what is neither, or where it would do nothing.
    """
    wanted, count = check_choice(f"{where} order", order, ORDERS), integer(f"{where} workers", workers, 1)
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
    if count > 1 and device.runtime.is_asynchronous:
        raise ValueError(
            f"{where} workers: wanted 1 on a GPU, whose operations run by themselves, received {count} on {device.name}"
        )
    if count > threads.threads():
        raise ValueError(
            f"{where} workers: wanted at most {threads.threads()}, the threads of all operations "
            f"(SINGA_LITE_THREADS), received {count}"
        )
    return wanted, count
