"""How a device is found by its name, or the default one: devices are made on a floor above tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from singa_lite.common.errors import GraphError

#: Finds the device that is named, or the default one: `device.get`, which `device` puts here.
_find: Callable[[Any], Any] | None = None


def find_devices_by(find: Callable[[Any], Any]) -> None:
    """Sets how a device is found, as devices are made on a floor above this one.

    >>> tensor.find_devices_by(device.get)  # as the package does when it is imported
    """
    global _find
    _find = find


def found_device(device: object) -> Any:
    """The device that is named, or the default one."""
    if _find is None:
        raise GraphError("wanted the package singa_lite to be imported, which says what devices there are")
    return _find(device)
