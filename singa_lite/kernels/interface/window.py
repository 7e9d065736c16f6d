"""Window: what a convolution or a pooling sees at a time, and how that slides over an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from singa_lite.common.errors import ShapeError

#: (height, width).
Pair = tuple[int, int]
#: (top, bottom, left, right).
Pad = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """A window over images: one setting of a kernel, hashable and equal to its like.

    kernel: rows and columns of its taps; stride: pixels from one window to the next; dilation: pixels from one
    tap to the next; pad: pixels added around the image. All are counts, and all but the padding at least 1.
    """

    kernel: Pair
    stride: Pair = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def taps(self) -> int:
        """How many taps the window has: elements of an image that it meets."""
        return prod(self.kernel)

    @property
    def span(self) -> Pair:
        """Pixels that the window spans, (height, width)."""
        (rows, columns), (down, across) = self.kernel, self.dilation
        return down * (rows - 1) + 1, across * (columns - 1) + 1

    @property
    def pad_before(self) -> Pair:
        """Pixels added before the first ones, (top, left)."""
        return self.pad[0], self.pad[2]

    @property
    def pad_behind(self) -> Pair:
        """Pixels added behind the last ones, (bottom, right)."""
        return self.pad[1], self.pad[3]

    @property
    def is_pixel(self) -> bool:
        """Whether each pixel is a window."""
        return self.taps == 1 and self.stride == (1, 1) and not any(self.pad)

    def __str__(self) -> str:
        """The window as `summary` shows it: "3 x 3, stride 1, pad 0", and the dilation if it is not 1."""
        (down, across), pad = self.stride, self.pad
        stride = down if down == across else self.stride
        dilation = "" if self.dilation == (1, 1) else f", dilation {self.dilation}"
        shown = pad[0] if len(set(pad)) == 1 else pad
        return f"{self.kernel[0]} x {self.kernel[1]}, stride {stride}, pad {shown}{dilation}"

    def positions(self, where: str, extents: Pair) -> Pair:
        """How many windows fit, (rows, columns): (extent + padding - span) // stride + 1.

        extents: (h, w) of the image. ShapeError, which begins with `where`, if not even one fits.
        """
        (height, width), (top, bottom, left, right), span = extents, self.pad, self.span
        rows, columns = height + top + bottom, width + left + right
        if rows < span[0] or columns < span[1]:
            raise ShapeError(
                f"{where}: wanted an image of at least {span[0]} x {span[1]} with its padding, "
                f"received {rows} x {columns} ({height} x {width} before padding)"
            )
        return (rows - span[0]) // self.stride[0] + 1, (columns - span[1]) // self.stride[1] + 1

    def rounded_up(self, extents: Pair) -> Window:
        """The window with as much more padding behind as counts of windows want that are rounded up, not down.

        As PyTorch's ceil_mode: a further window must begin within the image or the padding before it.
        """
        pads = list(self.pad)
        for axis, extent in enumerate(extents):
            kernel, stride, (before, behind) = self.span[axis], self.stride[axis], self.pad[2 * axis : 2 * axis + 2]
            start = -(-(before + extent + behind - kernel) // stride) * stride  # of the last window
            if start >= before + extent:
                start -= stride
            pads[2 * axis + 1] = max(behind, start + kernel - before - extent)
        top, bottom, left, right = pads
        return replace(self, pad=(top, bottom, left, right))

    def check_pads(self, where: str) -> None:
        """ShapeError, which begins with `where`, for pads by which a window may lie in the padding alone.

        Such a window has no largest element, and nothing to average.
        """
        if max(self.pad[:2]) >= self.kernel[0] or max(self.pad[2:]) >= self.kernel[1]:
            raise ShapeError(f"{where}: wanted pads below the kernel's extents {self.kernel}, received {self.pad}")
