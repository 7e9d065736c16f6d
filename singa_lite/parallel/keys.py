"""Keys of random numbers: ranks have one random state, which a checkpoint holds once, and draw others from it."""

from __future__ import annotations

from functools import partial

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.device import device_of
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature
from singa_lite.kernels.kernel_set import DeviceArray, Launch
from singa_lite.parallel.sums import Channel
from singa_lite.runtime.cuda import Cuda
from singa_lite.tensor import Tensor

#: Between the counters of two ranks: no layer draws so often.
APART = 1 << 40

_DRAW = Signature(
    SIGNATURES.own_name("parallel.draw_key"),
    ("state", "key"),
    ("Update", "Write"),
    frozenset(),
    ("call",),
    {},
    Facts(once=True, activations=()),
    "own",
)
SIGNATURES.enter_own(_DRAW)


class KeyCall:
    """The setting `call`: as the kernel `draw_key`, with the counter of this rank in the key."""

    scratch_bytes = 0

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._first = np.uint64(channel.communicator.rank * APART)

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None) -> Launch:
        """Bind it to its arrays."""
        return partial(self._draw, *arrays)

    def prepare_on_gpu(self, runtime: Cuda, arrays: tuple[DeviceArray, ...]) -> Launch:
        """Bind it to its arrays."""
        state, key = arrays
        return self._channel.on_gpu(runtime).draw_key(state, key, int(self._first))

    def _draw(self, state: Array, key: Array) -> None:
        np.copyto(key, state)
        np.add(key[2:], self._first, out=key[2:])
        np.add(state[2:], 1, out=state[2:])


def draw_key(state: Tensor, key: Tensor, channel: Channel) -> None:
    """Have this rank's key drawn: uint64 (3,) each. channel: of the net."""
    device_of(state).run(_DRAW.name, state, key, call=KeyCall(channel))
