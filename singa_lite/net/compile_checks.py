"""Checks of the options of `compile` with the net: its layers, outputs, device, losses and optimizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from singa_lite import optimizer as optimizers
from singa_lite.common import threads
from singa_lite.common.array_types import DType
from singa_lite.common.checks import kind_of
from singa_lite.common.errors import GraphError, PrecisionWarning
from singa_lite.common.notice import warn
from singa_lite.device import Device
from singa_lite.kernels.kernel_set import tf32_of
from singa_lite.layer import freezing
from singa_lite.layer.freezing import Freeze
from singa_lite.layer.layer import Layer, Node
from singa_lite.loss import Loss
from singa_lite.optimizer import Optimizer, precision, state_dtype
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.optimizer.loss_scale import checked as loss_scale_of
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.runtime.pool_numbers import in_words
from singa_lite.training.objective import GivenLosses, GivenMetrics, Losses, Metrics, Objective, losses_of, metrics_of
from singa_lite.training.settings import OF_OWN_STEPS, Settings, check_default, narrow_dtype
from singa_lite.training.stepping_net import SteppingNet
from singa_lite.training.steps.micro_batches import checked_count


@dataclass(frozen=True, eq=False, kw_only=True)
class Compiled:
    """What a net is to train by, checked."""

    settings: Settings
    optimizer: Optimizer
    losses: Losses | None
    metrics: Metrics | None
    scale: LossScale | None


def compiled(
    net: SteppingNet,
    given: Optimizer | str,
    loss: GivenLosses | None,
    metric: GivenMetrics | None,
    settings: Settings,
) -> Compiled:
    """Returns what `compile` is to put into the net, or raises its errors. Nothing of the net changes."""
    optimizer = optimizers.get(given) if isinstance(given, str) else given
    check_optimizer(optimizer)
    losses = net.loss if loss is None else losses_of(loss)
    metrics = net.metric if metric is None else metrics_of(metric)
    _check_own_step(net, settings, losses, metrics)
    nodes, dtype, freeze = net.ordered(), net.dtype, settings.freeze
    if freeze is not None:
        freeze = freezing.checked("compile freeze", freeze, net.all_layers())
    objective = None if losses is None else Objective(losses, metrics, net.output_names(), settings.loss_weights)
    check(nodes, objective, optimizer, freeze, dtype)
    if settings.micro_batches > 1:
        checked_count(nodes, settings.micro_batches, freeze, () if objective is None else objective.criteria)
    state_dtype.check(optimizer, settings.state_dtype, dtype)
    scale = loss_scale_of(settings.loss_scale, settings.precision, dtype)
    net._check_names("compile keep", settings.keep or ())
    for rule in settings.rules or ():
        rule.on(net.device)
    check_device(settings, net.device)
    settings = replace(settings, freeze=freeze)
    _check_precision(settings, [node.layer for node in nodes], net.device)
    if settings.parallel is not None and settings.parallel.size > 1:
        settings.parallel.check_device("compile parallel", net.device)
        check_ranks(settings.parallel, objective, optimizer, settings.state_dtype)
    return Compiled(settings=settings, optimizer=optimizer, losses=losses, metrics=metrics, scale=scale)


def check_device(settings: Settings, device: Device, where: str = "compile") -> None:
    """ValueError for settings that are not for this device."""
    if settings.workers > 1:
        _check_workers(settings.workers, device, where)
    budget, limit = settings.memory_budget, device.pool.limit
    if budget is not None and limit is not None and budget > limit:
        raise ValueError(
            f"{where} memory_budget: wanted at most the limit of device {device.name}, {in_words(limit)}, received "
            f"{in_words(budget)}; without a memory_budget the limit is kept to"
        )
    if settings.offload is None:
        return
    if budget is None and (limit is None or not settings.graph):
        raise ValueError(
            f"{where} offload: wanted a memory_budget beside it, which it helps to keep, received {settings.offload!r}"
        )
    if device.runtime.host_link is None:
        raise ValueError(
            f"{where} offload: wanted a GPU, as a CPU's memory is the host's own, which the budget bounds, received "
            f"device {device.name}"
        )


def _check_workers(count: int, device: Device, where: str) -> None:
    if device.runtime.is_asynchronous:
        raise ValueError(
            f"{where} workers: wanted 1 on a GPU, whose operations run by themselves, received {count} on {device.name}"
        )
    if count > threads.threads():
        raise ValueError(
            f"{where} workers: wanted at most {threads.threads()}, the threads of all operations "
            f"(SINGA_LITE_THREADS), received {count}"
        )


def _check_precision(settings: Settings, layers: Sequence[Layer], device: Device) -> None:
    """ValueError or ImportError for a precision that the net cannot have, DeviceError for tf32 without tensor cores."""
    wanted = settings.precision
    if wanted == "float32":
        return
    inner = {layer.path: layer for outer in layers for layer in outer.with_sublayers()}
    for layer in inner.values():
        if layer.dtype != np.float32:
            raise ValueError(
                f"compile precision={wanted!r}: wanted a net in float32, received layer {layer.path!r} in {layer.dtype}"
            )
    if wanted == "tf32":
        tf32_of(device.kernels)
        return
    unknown = [name for name in settings.float32_layers if name not in inner]
    if unknown:
        raise ValueError(f"compile float32_layers: wanted names of this net's layers, received {unknown}")
    narrow_dtype(wanted)
    if not device.runtime.is_asynchronous and (wanted == "float16" or not device.kernels.has_bfloat16):
        others = " (oneDNN has, with AVX512-BF16 or AMX)" if wanted == "bfloat16" else ""
        warn(
            f"compile precision={wanted!r}: activations take half the bytes, but kernels {device.kernels.name!r} have"
            f" no products in {wanted} on this processor{others}: those of float32 serve,"
            " over converted copies, and a step takes about as long as in float32",
            PrecisionWarning,
        )


def check_ranks(ranks: DataParallel, objective: Objective | None, optimizer: Optimizer, kept_as: str | None) -> None:
    """ValueError for updates that a part of a parameter cannot have by itself, where ranks have parts. GraphError for
    losses whose mean over several processes cannot be made of each one's. kept_as: the state_dtype.
    """
    if ranks.shard is not None and kept_as is not None:
        raise ValueError(f"compile parallel: wanted no state_dtype beside shard='state', received {kept_as!r}")
    if ranks.shard is not None and any(rule.constraint is not None for rule in optimizer.rules):
        raise ValueError("compile parallel: wanted an optimizer without constraints beside shard='state', received one")
    losses: Mapping[str, Loss] = {} if objective is None else objective.losses
    for name, loss in losses.items():
        if loss.of_whole_batch and (len(losses) > 1 or not loss.is_counted):
            raise GraphError(
                f"compile parallel: wanted losses that take each sample by itself, received {type(loss).__name__} of "
                f"output {name!r}, whose values go by the whole batch"
                + (", as with ignore_index, beside other outputs" if len(losses) > 1 else "")
            )


def _check_own_step(net: SteppingNet, settings: Settings, loss: object, metric: object) -> None:
    """ValueError or GraphError for what a step of the user's own leaves no use for, and nets that it cannot train."""
    for name, value in {"loss": loss, "metric": metric}.items():
        if settings.step is not None and value is not None:
            raise ValueError(f"compile step: wanted no {name} beside it, as the step computes its own, received one")
    for name, other in (settings.nets or {}).items():
        where = f"compile nets: net {name!r}"
        if not isinstance(other, type(net)) or other is net:
            shown = "the net itself" if other is net else type(other)
            raise TypeError(f"{where}: wanted another net, received {shown}")
        if other.optimizer is None or other.optimizer is net.optimizer:
            raise GraphError(f"{where}: wanted it compiled with an optimizer of its own first")
        if other.device is not net.device:
            raise GraphError(f"{where}: wanted it on {net.device.name}, as the net, received it on {other.device.name}")
        check_default(where, other.settings, OF_OWN_STEPS)


def check_trains_no_other(where: str, nets: Collection[str]) -> None:
    """GraphError for a net whose step trains others too, which the step's function names itself."""
    if nets:
        raise GraphError(
            f"{where}: wanted a net whose step trains it alone, received one of compile(nets={[*nets]}), "
            "which the step would still train; save each net, and compile the copies with a step of theirs"
        )


def check_optimizer(given: object) -> None:
    """TypeError unless it is an optimizer."""
    if not isinstance(given, Optimizer):
        hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
        raise TypeError(f"compile: wanted an Optimizer{hint}, received {kind_of(given)}")


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
        _warn_of_applied({node.layer.name: node for node in nodes}, objective)


def _check_freeze(nodes: Sequence[Node], outputs: Sequence[str], freeze: Freeze) -> None:
    """GraphError where a loss stands before the layer up to which all is frozen, or where nothing is left to train."""
    layers = [node.layer for node in nodes]
    found = freezing.freezing(layers, freeze)
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


def _warn_of_applied(nodes: Mapping[str, Node], objective: Objective) -> None:
    """Warns of a softmax or sigmoid before a loss that applies one itself, and of none before one that expects it."""
    for name, loss in objective.losses.items():
        before = _origin(nodes, name)
        if loss.applies and before.gives:
            warn(
                f"loss {type(loss).__name__} of output {name!r}: wanted raw scores, whose {loss.applies} it takes "
                f"itself, received the {before.gives} of layer {before.name!r}: leave that layer out",
                UserWarning,
            )
        if loss.expects and before.gives != loss.expects:
            warn(
                f"loss {type(loss).__name__} of output {name!r}: wanted probabilities of a {loss.expects}, received "
                f"what layer {before.name!r} gives: from_logits=True takes raw scores",
                UserWarning,
            )


def _origin(nodes: Mapping[str, Node], name: str) -> Layer:
    """The layer that made the values which the layer of this name gives, perhaps under another shape."""
    node = nodes[name]
    while node.layer.keeps_values and node.sources:
        node = nodes[node.sources[0][0]]
    return node.layer
