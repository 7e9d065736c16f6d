"""load: a net out of a file that `net.save` wrote, without the script that made it."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from singa_lite.autograd.rewriting import Rule
from singa_lite.common.keywords import explains_keywords
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec


def _is_table(where: str, given: object) -> None:
    if not isinstance(given, Mapping | None):
        raise TypeError(f"{where}: wanted {{name: class or rule}}, received {given!r:.100}")


@explains_keywords(custom=_is_table)
def load(
    path: str | PathLike[str], device: DeviceSpec = None, *, custom: Mapping[str, type | Rule] | None = None
) -> FeedForwardNet:
    """Returns the net that `net.save(path)` wrote: its layers, values, and the optimizer with its state, if it was
    compiled.

    device: where it is to live, default `device.default()`. custom: {name: class} of the user's own layers, losses and
    metrics, {name: rule} of its rewriting rules. SnapshotError for a file without a configuration: of another program,
    of weights alone, or of a net that has none, such as one with a function in a layer; make that net by its script,
    and call its `load`. ConfigError for a class or a rule that is not in custom.

    >>> Sequential([layers.Dense(3, input_shape=(5,))]).save("net.h5")
    >>> load("net.h5").predict(np.ones((2, 5), "float32")).shape
    (2, 3)
    """
    from singa_lite.snapshots import configured_net

    return configured_net.load(FeedForwardNet, path, device, custom=custom)


def _unpickled(*pickled: Any) -> FeedForwardNet:
    """Returns the net of a pickle of an earlier version, which names this function, see `common/old_paths.py`."""
    from singa_lite.snapshots import configured_net

    return configured_net.unpickled(FeedForwardNet, *pickled)
