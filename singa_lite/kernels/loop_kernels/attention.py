"""Attention by tiles, in both directions."""

from __future__ import annotations

from singa_lite.common import threads
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.library import AXES
from singa_lite.kernels.loop_kernels.operands import TYPES, are_stored
from singa_lite.kernels.loop_kernels.routine import BoxView, Builder, Call, Routine

#: As in `source/`: rows of a panel, keys of a tile, panels of a task forward, and what sizes are padded to.
PANEL, KEYS, PANELS, STEP = 64, 64, 4, 16
#: Scores up to which the calling thread does all.
SMALL = 1 << 14


def _attention(call: Call, routine: Routine) -> bool:
    return _run(call, routine, "attention", ["q", "k", "v", "mask", "y", "lse"])


def _derivative(call: Call, routine: Routine) -> bool:
    names = ["dy", "q", "k", "v", "mask", "y", "lse", "dq", "dk", "dv"]
    return _run(call, routine, "attention_derivative", names)


def _run(call: Call, routine: Routine, function: str, names: list[str]) -> bool:
    mask, key = call.given("mask"), call.given("key")
    tensors = call.all(*(name for name in names if name != "mask"))
    if not are_stored(*tensors) or (mask is not None and mask.dtype.kind not in "fiub"):
        return False
    if any(stride % spec.dtype.itemsize for spec in call.operands.values() for stride in spec.strides):
        return False
    (samples, rows, heads, size), (_, keys, kv_heads, _) = call["q"].shape, call["k"].shape
    is_forward = function == "attention"
    floats = _forward_floats(size) if is_forward else _backward_floats(keys, size)
    pieces = samples * (heads * -(-rows // (PANEL * PANELS)) if is_forward else kv_heads)
    is_small = samples * heads * rows * keys <= SMALL
    slots = 1 if is_small else min(threads.share() or threads.threads(), pieces)
    scratch = routine.temporary((slots, floats), "float32")
    sizes = samples, rows, keys, heads, kv_heads, size
    of_mask = (mask.dtype.itemsize, mask.dtype.kind == "f") if mask is not None else (1, 0)
    numbers = *of_mask, int(bool(call.settings["causal"])), slots, 4 * floats, call.number("scale"), call.number("p")
    routine.run(function, *(_box(call.given(name)) for name in names), key, scratch, sizes, *numbers)
    return True


def _forward_floats(size: int) -> int:
    """Of a thread: two tiles, three matrices of a panel, hidden keys, and what is kept of each panel."""
    matrix = PANEL * -(-size // STEP) * STEP
    return 2 * KEYS * PANEL + 3 * matrix + KEYS + PANELS * (2 * matrix + 2 * PANEL)


def _backward_floats(keys: int, size: int) -> int:
    """Of a thread: seven matrices of a panel, three tiles, sums of rows, sums of all keys, and hidden keys."""
    padded = -(-size // STEP) * STEP
    return 7 * PANEL * padded + 3 * KEYS * PANEL + 2 * PANEL + 2 * keys * padded + KEYS


def _box(spec: TensorSpec | None) -> BoxView | None:
    """The tensor with its own axes as the last of a box."""
    if spec is None:
        return None
    steps = [stride // spec.dtype.itemsize for stride in spec.strides]
    return BoxView(spec, (*[0] * (AXES - len(steps)), *steps), TYPES[spec.dtype.name])


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys(("attention", "attention_dropout"), _attention),
    **dict.fromkeys(("attention_derivative", "attention_dropout_derivative"), _derivative),
}
