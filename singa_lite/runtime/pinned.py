"""PinnedMemory: on a GPU, values that are offloaded lie in pinned memory of the host, copied on streams of their own.

    main    ... relu1 | conv2 ...             ... | conv3' conv2' | relu1' ...
    out               asked -> copy -> done  ^ waited for
    back                                          asked -> copy -> done ^ waited for

Each copy begins behind all that the main stream was asked for before, and the main stream waits for its end where the
program says so. In a capture the side streams join by these events, and a copy is a node of the graph.
"""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.cupy_types import Cupy, CupyArray, Stream
from singa_lite.runtime.side_stream import SideStream


class Copying(NamedTuple):
    """The two launches of a copy. end: behind it, all that is asked for comes after the copy."""

    begin: Launch
    end: Launch


class PinnedMemory:
    """Pinned bytes of the host, and copies of arrays of bytes (uint8, no gaps) to an offset there and back.

    A copy is bound once, and done by each run. stream: the main one. MemoryError where the host does not pin so many
    bytes.
    """

    def __init__(self, cupy: Cupy, stream: Stream, nbytes: int) -> None:
        self.nbytes = nbytes
        self._runtime = cupy.cuda.runtime
        self._out, self._back = SideStream(cupy, stream), SideStream(cupy, stream)
        self._pinned = _pinned(cupy, nbytes)

    def out(self, array: CupyArray, offset: int) -> Copying:
        """Binds a copy of an array to this offset."""
        kind = self._runtime.memcpyDeviceToHost
        return self._copying(self._out, self._pinned.ptr + offset, array.data.ptr, array.nbytes, kind)

    def back(self, array: CupyArray, offset: int) -> Copying:
        """Binds a copy of the bytes from this offset on into an array."""
        kind = self._runtime.memcpyHostToDevice
        return self._copying(self._back, array.data.ptr, self._pinned.ptr + offset, array.nbytes, kind)

    def _copying(self, side: SideStream, target: int, source: int, nbytes: int, kind: int) -> Copying:
        return Copying(*side.pair(lambda stream: self._runtime.memcpyAsync(target, source, nbytes, kind, stream)))

    def settle(self) -> None:
        """Waits until no copy is under way, as after a run that an interrupt has ended."""
        self._out.stream.synchronize()
        self._back.stream.synchronize()


def _pinned(cupy: Cupy, nbytes: int) -> Cupy:
    """So many bytes, not rounded up as those of CuPy's pool of pinned memory are: to powers of two."""
    try:
        return cupy.cuda.PinnedMemory(nbytes)
    except Exception as error:  # CUDARuntimeError, which CuPy alone has
        raise MemoryError(
            f"offload: wanted {nbytes:,} bytes of pinned memory of the host, received: {error}"
        ) from error
