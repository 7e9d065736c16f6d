"""Checks of the options of `compile` with the net: its layers, outputs, device, losses and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from singa_lite import optimizer as optimizers
from singa_lite.common import threads
from singa_lite.common.array_types import DType
from singa_lite.common.checks import kind_of, narrow_dtype
from singa_lite.common.errors import GraphError, PrecisionWarning
from singa_lite.common.notice import warn
from singa_lite.device import Device
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import tf32_of
from singa_lite.layer import freezing
from singa_lite.layer import stored_parameters as stored
from singa_lite.layer.freezing import Freeze
from singa_lite.layer.layer import Layer, Node
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.loss import Loss
from singa_lite.optimizer import Optimizer, precision, state_dtype, stored_parameters
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.optimizer.loss_scale import checked as loss_scale_of
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.data_parallel_step import DataParallelStep
from singa_lite.parallel.gradients.ownership import Ownership, ownership_of
from singa_lite.runtime.pool_numbers import in_words
from singa_lite.training.objective import Losses, Metrics, Objective
from singa_lite.training.settings import Settings
from singa_lite.training.steps.micro_batches import checked_count


@dataclass(frozen=True, eq=False, kw_only=True)
class Compiled:
    """The optimizer and the settings that a net is to train by, checked with its layers; scale: of its losses."""

    settings: Settings
    optimizer: Optimizer
    scale: LossScale | None


def compiled(
    layers: LayerGraph, given: Optimizer | str, losses: Losses | None, metrics: Metrics | None, settings: Settings
) -> Compiled:
    """Returns what a net is to train by, or raises the errors of `compile`. Nothing of the net changes."""
    optimizer = checked_optimizer(optimizers.get(given) if isinstance(given, str) else given)
    for name, criterion in {"loss": losses, "metric": metrics}.items():
        if settings.step is not None and criterion is not None:
            raise ValueError(f"compile step: wanted no {name} beside it, as the step computes its own, received one")
    nodes, dtype, freeze = layers.ordered(), layers.dtype, settings.freeze
    if freeze is not None:
        freeze = freezing.checked("compile freeze", freeze, layers.all_layers())
    objective = None if losses is None else Objective(losses, metrics, layers.output_names(), settings.loss_weights)
    check(nodes, objective, optimizer, freeze, dtype)
    if settings.micro_batches > 1:
        checked_count(nodes, settings.micro_batches, freeze, () if objective is None else objective.criteria)
    state_dtype.check(optimizer, settings.state_dtype, dtype)
    check_stored(settings, optimizer, layers)
    scale = loss_scale_of(settings.loss_scale, settings.precision, dtype)
    layers._check_names("compile keep", settings.keep or ())
    for rule in settings.rules or ():
        rule.on(layers.device)
    check_device(settings, layers.device)
    settings = replace(settings, freeze=freeze)
    _check_precision(settings, [node.layer for node in nodes], layers.device)
    if settings.parallel is not None and settings.parallel.size > 1:
        settings.parallel.check_device("compile parallel", layers.device)
        check_ranks(settings.parallel, objective, optimizer, settings.state_dtype)
    return Compiled(settings=settings, optimizer=optimizer, scale=scale)


def check_stored(settings: Settings, optimizer: Optimizer, layers: LayerGraph) -> None:
    """ValueError or ImportError where parameters cannot be stored as `parameter_dtype` says."""
    stored_parameters.check(optimizer, settings.rounding_of(layers.seed))
    where, name = "compile parameter_dtype", settings.parameter_dtype
    stored.check(where, name, layers.dtype)
    ranks = settings.parallel
    if name == "bfloat16" and ranks is not None and ranks.size > 1 and ranks.shard is not None:
        raise ValueError(f"{where}={name!r}: wanted whole state on each process, received shard={ranks.shard!r}")


def data_parallel_step(
    layers: LayerGraph,
    settings: Settings,
    optimizer: Optimizer,
    before: Ownership | None,
    compared: Callable[[], dict[str, str]],
) -> DataParallelStep | None:
    """Returns the step that several processes do together; None where this one trains alone.

    before: which rank has which state of the optimizer by now; compared: returns what all ranks are to have alike.
    GraphError as of `ownership_of`.
    """
    ranks = settings.parallel
    if ranks is None and before is None:
        return None
    trained_layers = freezing.freezing((node.layer for node in layers.ordered()), settings.freeze).trained
    own = (value for layer in trained_layers if layer.trainable for value in layer.own_parameters.values())
    trained = {value.name for value in own if value.stores_grad}
    parts = ownership_of(ranks, layers.parameters(), trained, before, optimizer.has_state)
    if ranks is None:
        return None
    ranks.bind_net(layers)
    names = layers.output_names()
    return None if ranks.size == 1 else DataParallelStep(ranks, names, layers.parameters, compared, parts)


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
    narrow_dtype("compile precision", wanted)
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
    if ranks.shard is not None and not SIGNATURES[optimizer.kernel].facts.by_elements:
        raise ValueError(
            "compile parallel: wanted an optimizer that updates each element by itself beside shard='state', received "
            f"{type(optimizer).__name__}"
        )
    losses: Mapping[str, Loss] = {} if objective is None else objective.losses
    for name, loss in losses.items():
        if loss.of_whole_batch and (len(losses) > 1 or not loss.is_counted):
            raise GraphError(
                f"compile parallel: wanted losses that take each sample by itself, received {type(loss).__name__} of "
                f"output {name!r}, whose values go by the whole batch"
                + (", as with ignore_index, beside other outputs" if len(losses) > 1 else "")
            )


def checked_optimizer(given: object) -> Optimizer:
    """Returns the optimizer. TypeError for anything else."""
    if not isinstance(given, Optimizer):
        hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
        raise TypeError(f"compile: wanted an Optimizer{hint}, received {kind_of(given)}")
    if "settings" not in vars(given):
        raise TypeError(
            f"compile: wanted an optimizer whose __init__ calls super().__init__(lr), received {kind_of(given)}"
        )
    return given


def check(
    nodes: Sequence[Node], objective: Objective | None, optimizer: Optimizer, freeze: Freeze, dtype: DType
) -> None:
    """Raise GraphError or ValueError for what would fail, or go wrong silently, at the first batch.

    nodes: the layers in topological order; objective: None where there is no loss yet; freeze: as for `compile`.
    """
    optimizer.check_names([value.name for node in nodes for value in node.layer.parameters.values()])
    for member in optimizer.members:
        precision.check(member, dtype)
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
