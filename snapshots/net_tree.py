"""A net and its optimizer as a tree, and a tree back into a net, strictly."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ConfigError, SnapshotError
from singa_lite.layer.layer import Layer
from singa_lite.layer.lora import is_adapter
from singa_lite.optimizer import Optimizer
from singa_lite.snapshots import adapter_base, sharded_state, step_state, stored_parameters
from singa_lite.snapshots.config import config_of
from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.tree import VERSION, ArraySpec, Tree, check_format, number_of
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.trained_net import TrainedNet

#: Options of layers, numbers or flags, by which their arrays lie otherwise in other programs' files.
_OPTIONS = ("heads", "kv_heads", "rotary", "num_stacks", "bidirectional", "reset_after")


def of_net(net: TrainedNet, whole_step: bool = True) -> Tree:
    """The tree of a net as it stands, as far as this process has it (`sharded_state`). whole_step: an unfinished step
    is a SnapshotError.
    """
    if whole_step and net.trainer.runner.unfinished_at:
        raise SnapshotError(
            f"save: wanted a whole step, but the last backward() was left at layer {net.trainer.runner.unfinished_at!r}"
        )
    layers = [[path, type(layer).__name__] for path, layer in net.all_layers().items()]
    attributes: dict[str, Attribute] = {"format": "singa_lite", "version": VERSION, "layers": json.dumps(layers)}
    attributes["wiring"] = json.dumps(wiring(net))
    if whole_step:
        attributes |= _configuration(net)
    if net.optimizer is not None:
        attributes |= {"optimizer": type(net.optimizer).__name__, "step": net.optimizer.step}
        if net.optimizer.state_dtype is not None:
            attributes["state_dtype"] = net.optimizer.state_dtype
        if net.optimizer.gathering.done:
            attributes |= step_state.attributes(net.optimizer.gathering)
    attributes |= stored_parameters.attributes_of(net.parameters())
    arrays = {path: stored_parameters.lazy(tensor) for path, tensor in tensors(net).items()}
    return Tree(arrays, attributes | {"entries": len(arrays)})


def _configuration(net: TrainedNet) -> dict[str, Attribute]:
    """How the net can be made again, or why it cannot."""
    try:
        return {"config": json.dumps(config_of(net))}
    except ConfigError as error:
        return {"config_missing": str(error)}


def wiring(net: TrainedNet) -> list[dict[str, object]]:
    """For each layer, in topological order, what surrounds it: Keras's layout of its arrays depends on that.

    inputs, outputs: sample shapes; sources: [[layer, number of its output], ...]; shares: the layer whose parameters it
    uses, if they are not its own; options: those of `_OPTIONS` that it has. Layers within others follow these, without
    inputs and sources.
    """
    found: list[dict[str, object]] = []
    for layer, sources in net.ordered():
        inputs = [net.output_shapes(name)[number] for name, number in sources] or net.fed_shapes(layer.name)
        found.append(_wired(layer, inputs, sources))
        found += [_wired(inner, [], ()) for inner in islice(layer.with_sublayers(), 1, None)]
    return found


def _wired(layer: Layer, inputs: Sequence[Shape] | None, sources: Sequence[tuple[str, int]]) -> dict[str, object]:
    owner = layer
    while owner.shared_with is not None:
        owner = owner.shared_with
    entry: dict[str, object] = {"inputs": inputs, "outputs": layer.output_sample_shapes, "sources": sources}
    options = {name: int(vars(layer)[name]) for name in _OPTIONS if name in vars(layer)}
    return entry | ({"shares": owner.path} if owner is not layer else {}) | ({"options": options} if options else {})


def restore(
    net: TrainedNet, snapshot: Tree, optimizer: bool | None, last_check: Callable[[], object] = lambda: None
) -> None:
    """Put what a snapshot holds into the net's tensors. optimizer: whether its state too; None: if there is one.

    SnapshotError names the first entry that is missing, extra, or of another shape or dtype. All entries are read
    once before the net changes, so one that cannot be read changes nothing. last_check: called after these checks and
    before the net changes; if it raises, nothing changes. Forgets an unfinished step.
    """
    check_format(snapshot)
    snapshot = without_constants(net, stored_parameters.as_floats(snapshot))
    receiver = net.optimizer if optimizer is None or optimizer else None
    if optimizer and receiver is None:
        raise SnapshotError(f"{snapshot.path}: wanted a compiled net to put the optimizer's state into")
    step = 0 if receiver is None else _checked_step(snapshot, receiver)
    done = 0 if receiver is None else step_state.checked_done(snapshot, receiver)
    updated = [] if receiver is None else _updated(snapshot, net.param_names())
    if receiver is not None and updated:
        stored_parameters.check_rounding(snapshot, net.parameters(), receiver.rounding.name)
    summed = step_state.names(snapshot, net.param_names()) if done else []
    scaled = {} if receiver is None else step_state.step_specs(net, snapshot)
    base = adapter_base.absent_paths(net, snapshot)
    wanted = _wanted_specs(net, receiver, updated) | step_state.specs(net.parameters(), summed) | scaled
    wanted = {path: spec for path, spec in wanted.items() if path not in base}
    ignored = ("training/",) if receiver is not None else ("training/", "optimizer/")
    known = wanted.keys() | step_state.STEP_SPECS
    check_entries(
        snapshot, wanted, [path for path in snapshot.arrays if path not in known and not path.startswith(ignored)]
    )
    entries = number_of(snapshot, "entries")
    if len(snapshot.arrays) != entries:
        raise SnapshotError(f"{snapshot.path}: wanted the {entries} entries written, received {len(snapshot.arrays)}")
    for path in wanted:
        snapshot.read(path)
    last_check()
    own = {} if receiver is None else sharded_state.own_values(net)
    updated, summed = ([name for name in names if name in own] for names in (updated, summed))
    if receiver is not None:
        _make_room(receiver.state, receiver.state_for, own, updated)
        _make_room(receiver.gathering.sums, partial(receiver.gathering.total, receiver), own, summed)
    net.trainer.begin_restore()
    if receiver is not None:
        _clear(receiver, updated)
        receiver.restore_step(step)
        receiver.gathering.done = 0
        net.trainer.restart_scaling()
    found = of_layers(net) | _of_optimizer(receiver, updated) | step_state.tensors(receiver, summed)
    for path, tensor in (found | (step_state.step_tensors(net) if scaled else {})).items():
        if path not in base:
            tensor.copy_from_numpy(sharded_state.own_elements(net, path, _read_again(snapshot, path)))
    if receiver is not None:
        step_state.restore_positions(snapshot, receiver, net.device)
        receiver.gathering.done = done
    net.trainer.discard_step()


def _read_again(snapshot: Tree, path: str) -> Array:
    """Reads an array a second time, as the first copy was not kept. The file may have been changed in between."""
    try:
        return snapshot.read(path)
    except SnapshotError as error:
        text = "the file was changed while it was read, and the net holds a part of it; load a whole one"
        raise SnapshotError(f"{error}: {text}") from error


def tensors(net: TrainedNet) -> dict[str, Tensor]:
    """All tensors of a net and its optimizer that a snapshot holds and this process has whole, by path."""
    if net.optimizer is None:
        return of_layers(net)
    if sharded_state.ownership(net) is not None:
        return of_layers(net) | step_state.step_tensors(net)
    found = of_layers(net) | _of_optimizer(net.optimizer, _names(net, net.optimizer))
    found |= step_state.tensors(net.optimizer, step_state.summed(net.optimizer, net.parameters()))
    return found | step_state.step_tensors(net)


def of_layers(net: TrainedNet) -> dict[str, Tensor]:
    """A net's parameters and state, by their paths in the tree."""
    tensors = {f"parameters/{name}": tensor for name, tensor in net.parameters().items()}
    return tensors | {f"state/{name}": tensor for name, tensor in net.states().items()}


def without_constants(net: TrainedNet, snapshot: Tree) -> Tree:
    """The tree without tables of positions, which were state in earlier files and follow from options now."""
    tables = (f"state/{layer.path}/{name}" for layer in net.all_layers().values() for name in layer.constants)
    left_out = {path for path in tables if path in snapshot.arrays}
    if not left_out:
        return snapshot
    arrays = {path: lazy for path, lazy in snapshot.arrays.items() if path not in left_out}
    attributes = {**snapshot.attributes, "entries": number_of(snapshot, "entries") - len(left_out)}
    return replace(snapshot, arrays=arrays, attributes=attributes)


def _of_optimizer(optimizer: Optimizer | None, names: Collection[str]) -> dict[str, Tensor]:
    """The optimizer's state of the parameters of these names."""
    if optimizer is None:
        return {}
    return {f"optimizer/{name}/{slot}": t for name in names for slot, t in optimizer.state[name].items()}


def _names(net: TrainedNet, optimizer: Optimizer) -> list[str]:
    """Parameters that the optimizer has state of, in the net's order. SnapshotError for state of anything else."""
    parameters = net.parameters()
    strangers = [key for key in optimizer.state if key not in parameters and not is_adapter(key)]
    if strangers:
        raise SnapshotError(f"save: wanted optimizer state by names of the net's parameters, received {strangers}")
    return [name for name in parameters if name in optimizer.state]


def _checked_step(snapshot: Tree, optimizer: Optimizer) -> int:
    """The optimizer's step in the file. SnapshotError unless the file is of an optimizer of this class."""
    wanted, found = type(optimizer).__name__, snapshot.attributes.get("optimizer")
    if not isinstance(found, str) or found != wanted:
        raise SnapshotError(
            f"{snapshot.path}: wanted the state of optimizer {wanted}, received {found}; "
            "load(path, optimizer=False) takes parameters and state only"
        )
    kept = snapshot.attributes.get("state_dtype")
    if kept != optimizer.state_dtype:
        raise SnapshotError(
            f"{snapshot.path}: wanted optimizer state of compile(state_dtype={optimizer.state_dtype!r}), received that "
            f"of state_dtype={kept!r:.100}; compile with the file's, or load(path, optimizer=False), which takes "
            "parameters and state only"
        )
    return number_of(snapshot, "step")


def _updated(snapshot: Tree, parameters: list[str]) -> list[str]:
    """The parameters that the file has optimizer state of: those that had been updated when it was written."""
    heads = {path.rpartition("/")[0] for path in snapshot.arrays if not path.endswith(step_state.SUM)}
    return [name for name in parameters if f"optimizer/{name}" in heads]


def _wanted_specs(net: TrainedNet, optimizer: Optimizer | None, updated: list[str]) -> dict[str, ArraySpec]:
    wanted = {path: stored_parameters.spec(tensor) for path, tensor in of_layers(net).items()}
    if optimizer is not None:
        parameters = net.parameters()
        for name in updated:
            for slot, form in optimizer.state_forms(parameters[name]).items():
                wanted[f"optimizer/{name}/{slot}"] = ArraySpec(*form)
    return wanted


def check_entries(snapshot: Tree, wanted: Mapping[str, ArraySpec], unused: Sequence[str]) -> None:
    """SnapshotError for the first entry that is missing or has another shape or dtype, and for one without a place."""
    for path, (shape, dtype) in wanted.items():
        if path not in snapshot.arrays:
            hint = "; load(path) of the base comes before add_lora(), or takes strict=False" if is_adapter(path) else ""
            raise SnapshotError(f"{snapshot.path}: wanted an entry {path!r}, received none of that name{hint}")
        found = snapshot.arrays[path]
        if found.shape != shape:
            raise SnapshotError(f"{snapshot.path}: entry {path!r}: wanted shape {shape}, received {found.shape}")
        if found.dtype != dtype:
            raise SnapshotError(f"{snapshot.path}: entry {path!r}: wanted {dtype}, received {found.dtype}")
    for path in unused:
        hint = "; add_lora() with the options of the file's net makes one" if is_adapter(path) else ""
        raise SnapshotError(f"{snapshot.path}: received an entry {path!r}, for which there is no place{hint}")


def _make_room(
    held: MutableMapping[Any, Any],
    make: Callable[[str, Tensor], object],
    parameters: Mapping[str, Tensor],
    names: Collection[str],
) -> None:
    """Have `make` enter what these parameters lack into `held`. If memory runs out, what was made is dropped."""
    fresh = [name for name in names if name not in held]
    try:
        for name in names:
            make(name, parameters[name])
    except BaseException:
        for name in fresh:
            held.pop(name, None)
        raise


def _clear(optimizer: Optimizer, names: Collection[str]) -> None:
    """Set all other state to zeros, as before a first update. The tensors stay, as recorded steps read them."""
    for key in optimizer.state.keys() - set(names):
        for tensor in optimizer.state[key].values():
            tensor.copy_from_numpy(np.zeros(tensor.shape, tensor.dtype))
