"""Family: nets that have layers in common, and what is done to one of them that concerns the others."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from singa_lite.device import Device
from singa_lite.layer.layer import Layer
from singa_lite.net.compile_checks import check_device
from singa_lite.training.readers import Readers
from singa_lite.training.stepping_net import SteppingNet
from singa_lite.training.trainer import Trainer


class Family:
    """Nets that have layers in common, for as long as somebody holds them.

    What reads parameters beside a step of one of them, as a checkpoint does, is waited for by the steps of all; where a
    step of one was left before its end, none goes on; and all of them move to another device together.
    """

    def __init__(self) -> None:
        self._nets: list[weakref.ref[SteppingNet]] = []
        self._readers: Readers | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> Family:
        """An empty one: a net that is copied joins it, and so do others of the family that are copied with it."""
        made = Family()
        memo[id(self)] = made
        return made

    def join(self, net: SteppingNet, trainer: Trainer) -> None:
        """trainer: the net's."""
        if self._readers is None:
            self._readers = trainer.readers
        trainer.readers, trainer.beside = self._readers, self._trainers
        self._nets = [ref for ref in self._nets if ref() is not None]
        self._nets.append(weakref.ref(net))

    def nets(self) -> list[SteppingNet]:
        """Those that are still there, in the order of joining."""
        return [net for net in (ref() for ref in self._nets) if net is not None]

    def _trainers(self) -> list[Trainer]:
        return [net.trainer for net in self.nets()]


def move(nets: Sequence[SteppingNet], to: Device) -> None:
    """Move the parameters, state and optimizer's state of nets. All of them are checked before one of them changes."""
    for net in nets:
        _check(net, to)
    for net in nets:
        net.trainer.left_at = "(while the net was being moved to another device)"
        net.trainer.steps = net.trainer.steps.anew()  # recorded steps are bound to the old device
    layers: dict[int, Layer] = {id(node.layer): node.layer for net in nets for node in net.ordered()}
    _move_layers(list(layers.values()), nets, to)
    for net in nets:
        if net.optimizer is not None:
            net.optimizer.to_device(to)
        if net.together is not None:
            net.together.follow()
        net.move_step(to)
        vars(net)["device"] = to
        net.trainer.steps = net.trainer.steps.anew()
    for net in nets:
        net.trainer.forget()


def _move_layers(layers: Sequence[Layer], nets: Sequence[SteppingNet], to: Device) -> None:
    """Where that fails on the way from an abstract device, as where memory is too small, they are back there."""
    before = nets[0].device
    try:
        for layer in layers:
            layer.to_device(to)
    except BaseException:
        if before.is_abstract:
            for layer in layers:
                layer.set_up_anew(before)
            for net in nets:
                net.trainer.forget()
        raise


def _check(net: SteppingNet, to: Device) -> None:
    """Refuses a move to another device. GraphError after an unfinished step, AbstractDeviceError for a device that
    would forget what the net has, and the errors of `compile` where its options are not for that device.
    """
    net.trainer.check_whole("to_device")
    if not net.device.is_abstract:
        to.check_bytes("to_device")
    if net.together is not None:
        net.together.ranks.check_device("to_device", to)
    check_device(net.trainer.steps.how, to, "to_device")
