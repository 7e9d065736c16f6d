"""Nets out of files and pickles: made by the configuration that stands beside the values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

from singa_lite.autograd.rewriting import Rule
from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.common.nesting import depth_of, make_room
from singa_lite.snapshots import formats, net_tree
from singa_lite.snapshots.config import config_of as config_of
from singa_lite.snapshots.config import net_of as net_of
from singa_lite.snapshots.config.values import AsItIs, Plain
from singa_lite.snapshots.formats import Path
from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.tensor import DeviceSpec
from singa_lite.training.trained_net import TrainedNet

Net = TypeVar("Net", bound=TrainedNet)


def load(
    kind: type[Net], path: Path, device: DeviceSpec = None, *, custom: Mapping[str, type | Rule] | None = None
) -> Net:
    """The net that `net.save(path)` wrote, with its values, compiled with its optimizer and its state.

    kind: the net's class; device: where it is to live; custom: {name: class} of the user's own layers, losses and
    metrics, {name: rule} of its rewriting rules. SnapshotError for a file without a configuration: one of another
    program, of weights alone, of a net that has none (the message says why), or of an earlier version; make the net by
    its script then, and call net.load(path). ConfigError for a class or a rule that is not in custom.
    """
    with formats.opened(path) as found:
        text, reason = found.attributes.get("config"), found.attributes.get("config_missing")
    if not isinstance(text, str):
        why = f", as it was written of a net without one: {reason}" if isinstance(reason, str) else ""
        raise SnapshotError(f"{path!s}: wanted a snapshot with the net's configuration, received one without{why}")
    net = net_of(kind, _parsed(path, text), device, custom)
    formats.load(net, path)
    return net


def _parsed(path: Path, text: str) -> object:
    make_room(depth_of(text))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{path!s}: attribute 'config': {error}") from None


def pickled(net: TrainedNet) -> tuple[object, ...]:
    """Returns the arguments of `unpickled`: a net's configuration, with the user's own objects as they are, and arrays.

    SnapshotError after an unfinished step.
    """
    ranks = net.trainer.ranks
    if ranks is not None and ranks.ownership is not None:
        raise SnapshotError(
            "pickle: wanted a net whose optimizer's state is on this process, received one of "
            f"{ranks.ranks.size} ranks that have parts of it (shard='state'); net.save collects them"
        )
    tree = net_tree.of_net(net)
    arrays = {path: lazy.fetch() for path, lazy in tree.arrays.items()}
    classes: dict[str, type] = {}
    config = config_of(net, _as_it_is, classes)
    return config, classes, arrays, dict(tree.attributes)


def _as_it_is(_: str, value: object) -> Plain:
    return AsItIs(value)


def unpickled(
    kind: type[Net],
    config: object,
    classes: Mapping[str, type],
    arrays: Mapping[str, Array],
    attributes: Mapping[str, Attribute],
) -> Net:
    """Returns a net of this class as `pickled` described it, on the default device."""
    net = net_of(kind, config, None, classes)
    lazy = {path: LazyArray(array.shape, array.dtype, array.view) for path, array in arrays.items()}
    net_tree.restore(net, Tree(lazy, dict(attributes), "pickle"), None)
    return net
