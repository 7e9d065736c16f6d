"""Attention by tiles, in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from singa_lite.common import threads
from singa_lite.kernels.ids import checked_span
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.loop_kernels.library import AXES
from singa_lite.kernels.loop_kernels.operands import MASK_BYTES, TYPES, check_key, check_stored, check_strides
from singa_lite.kernels.loop_kernels.routine import Addresses, BoxView, Builder, Call, LoopStep, Routine, want
from singa_lite.kernels.routine import Temporary

#: As in `source/`: rows of a panel, keys of a tile, panels of a task forward, and what sizes are padded to.
PANEL, KEYS, PANELS, STEP = 64, 64, 4, 16
#: Scores up to which the calling thread does all; of one row, where each takes the reading of a key and its value.
SMALL, SMALL_ROW = 1 << 14, 1 << 11


def _attention(call: Call, routine: Routine) -> None:
    """y and lse."""
    pieces = call["q"].shape[0] * call["q"].shape[2] * -(-call["q"].shape[1] // (PANEL * PANELS))
    plan = _planned(call, routine, pieces, _forward_floats(call["q"].shape[3]))
    numbers = int(bool(call.settings["causal"])), *plan.slots, call.number("scale"), call.number("p")
    operands = _boxes(call, "q", "k", "v", "mask", "first", "y", "lse")
    routine.run("attention", *operands, call.optional("key"), plan.scratch, plan.sizes, *plan.mask, *numbers)


def _derivative(call: Call, routine: Routine) -> None:
    """dq, dk and dv."""
    samples, keys, kv_heads, size = call["k"].shape
    plan = _planned(call, routine, samples * kv_heads, _backward_floats(keys, size))
    numbers = int(bool(call.settings["causal"])), *plan.slots, call.number("scale"), call.number("p")
    operands = _boxes(call, "dy", "q", "k", "v", "mask", "first", "y", "lse", "dq", "dk", "dv")
    routine.run("attention_derivative", *operands, call.optional("key"), plan.scratch, plan.sizes, *plan.mask, *numbers)


def _cached(call: Call, routine: Routine) -> None:
    """y of the last rows. Of one row, all query heads of a key head are done as so many rows of one head."""
    (samples, rows, heads, size), (_, length, kv_heads, _) = call["q"].shape, call["keys"].shape
    want(call["position"].dtype.name == "int64", "a position of int64")
    function, share, floats = "cached_attention", 1, _forward_floats(size)
    if rows == 1:
        function, share = "cached_row", heads // kv_heads
        floats = _row_floats(share, size)
    plan = _planned(call, routine, samples * heads // share, floats, share)
    q, y = (_heads_as_rows(_box(call[name]), share) for name in ("q", "y"))
    others = _boxes(call, "keys", "values", "mask", "first")
    arguments = q, *others, y, call["position"], plan.scratch, plan.sizes, *plan.mask, *plan.slots, call.number("scale")
    routine.steps.append(_SpanStep(routine.library, function, arguments, call["position"], rows, length))


@dataclass
class _SpanStep(LoopStep):
    """A call of a C function that goes over `count` places of `length` behind a position."""

    position: TensorSpec
    count: int
    length: int

    def bind(self, binding: Addresses) -> Launch:
        """The function behind a look at the position, with the IndexError of `checked_span`."""
        launch, position = super().bind(binding), binding.arrays[id(self.position)]

        def run() -> None:
            checked_span(position, self.count, self.length)
            launch()

        return run


class _Plan(NamedTuple):
    """Arguments that all functions have. mask: bytes of one of its numbers, and whether these are floats.

    slots: of threads, and bytes of scratch of each.
    """

    scratch: Temporary
    sizes: tuple[int, ...]
    mask: tuple[int, int]
    slots: tuple[int, int]


def _planned(call: Call, routine: Routine, pieces: int, floats: int, share: int = 1) -> _Plan:
    """The scratch for so many floats of each thread.

    share: heads that are done as rows of one.
    """
    k, mask = call.optional("k") or call["keys"], call.optional("mask")
    tensors = [spec for name, spec in call.operands.items() if name not in ("mask", "first", "key", "position")]
    check_stored(*tensors)
    check_strides(*call.operands.values())
    check_key(call.optional("key"))
    want(all(spec.dtype.name in ("int32", "int64") for spec in call.all("first")), "first keys of int32 or int64")
    want(mask is None or (mask.dtype.kind in "fiub" and mask.dtype.itemsize <= MASK_BYTES), "a mask of 8 bytes at most")
    samples, rows, heads, size = call["q"].shape
    is_small = samples * heads * rows * k.shape[1] <= (SMALL if rows > 1 else SMALL_ROW)
    slots = 1 if is_small else min(threads.share() or threads.threads(), pieces)
    scratch = routine.temporary((slots, floats), "float32")
    sizes = samples, rows * share, k.shape[1], heads // share, k.shape[2], size
    of_mask = (mask.dtype.itemsize, int(mask.dtype.kind == "f")) if mask is not None else (1, 0)
    return _Plan(scratch, sizes, of_mask, (slots, 4 * floats))


def _forward_floats(size: int) -> int:
    """Of a thread: two tiles, three matrices of a panel, hidden keys, and what is kept of each panel."""
    matrix = PANEL * -(-size // STEP) * STEP
    return 2 * KEYS * PANEL + 3 * matrix + KEYS + PANELS * (2 * matrix + 2 * PANEL)


def _backward_floats(keys: int, size: int) -> int:
    """Returns floats of scratch of a thread: matrices of a panel, tiles, sums of rows and of keys, hidden keys."""
    padded = -(-size // STEP) * STEP
    return 7 * PANEL * padded + 3 * KEYS * PANEL + 2 * PANEL + 2 * keys * padded + KEYS


def _row_floats(share: int, size: int) -> int:
    """Of a thread, where there is one row: keys and values of a tile, hidden keys, y, q, and scores."""
    padded = -(-size // STEP) * STEP
    return 2 * KEYS * padded + KEYS + (share + -(-share // STEP) * STEP) * padded + share * (2 + KEYS)


def _box(spec: TensorSpec) -> BoxView:
    """The tensor with its own axes as the last of a box."""
    steps = [stride // spec.dtype.itemsize for stride in spec.strides]
    type = TYPES.get(spec.dtype.name, spec.dtype.itemsize)  # the bytes of an int; that of a mask stands elsewhere
    return BoxView(spec, (*[0] * (AXES - len(steps)), *steps), type)


def _boxes(call: Call, *names: str) -> list[BoxView | None]:
    """Those operands; None for one that is left out."""
    return [None if call.optional(name) is None else _box(call[name]) for name in names]


def _heads_as_rows(box: BoxView, share: int) -> BoxView:
    """The same where `share` heads one behind the other are the rows of one head; of 1, all as it was."""
    *others, row, head, number = box.steps
    return BoxView(box.view, (*others, head if share > 1 else row, share * head, number), box.type)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "attention": _attention,
    "attention_derivative": _derivative,
    "cached_attention": _cached,
}
