"""What the proof of rewriting says of pieces is true: pieces of a call make what the whole call makes, row by row.

Each case of the kernels' contract is cut in two, in every way that `splits.py` knows for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from every_row import over_rows
from kernel_case import Case, garbage, run
from kernel_cases import CASES
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.state_format import BLOCKED
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Instruction, Operand, Phase
from singa_lite.passes.splits import Split, splits
from singa_lite.tensor import contiguous_strides

#: Kernels that at least one case must be cut of.
WANTED = {
    *("matmul", "linear", "linear_gradient", "bias_gradient", "embedding_gradient", "embedding_gradient_add"),
    *("softmax_classes_derivative", "softmax_cross_entropy", "sgd", "adam", "add_squares", "relu", "add"),
}


def of_rows(rng: np.random.Generator, dtype: Any, big: bool) -> Any:
    """The sums of a bias's gradient over rows."""
    return [rng.standard_normal((7, 4)).astype(dtype), garbage((4,), dtype)], {"axis": 1}


ALL = {**CASES, "bias_gradient:rows": Case(of_rows)}


def called(kernel: str, tensors: list[Any], settings: dict[str, Any]) -> Instruction:
    """The call as it would be recorded."""
    operands = tuple(
        None if t is None else Operand(n, t.shape, t.dtype, contiguous_strides(t.shape, t.dtype), 0)
        for n, t in enumerate(tensors)
    )
    return Instruction(0, kernel, operands, settings, Phase.FORWARD, "", 0)


def cut(array: Any, axis: int, start: int, stop: int) -> Any:
    return np.ascontiguousarray(array[(slice(None),) * axis + (slice(start, stop),)])


def piece(kernel: str, tensors: list[Any], settings: dict[str, Any], split: Split, at: tuple[int, int]) -> list[Any]:
    """The tensors behind a call of one piece; what is whole is copied."""
    names = SIGNATURES[kernel].tensors
    mine = [
        None if t is None else cut(t, split.axes[n], *at) if n in split.axes else t.copy()
        for n, t in zip(names, tensors, strict=True)
    ]
    first = {"first": settings["first"] + at[0]} if "first" in settings else {}
    run(NUMPY, kernel, mine, {**settings, **first})
    return mine


def test_each_kernel_is_tried():
    found = {key.split(":")[0] for key, case in ALL.items() if list(cuts(key, case))}
    assert found >= WANTED


def cuts(key: str, case: Case) -> Any:
    tensors, settings = case.build(np.random.default_rng(5), np.dtype("float64"), False)
    if any(t is not None and t.dtype in (BLOCKED, np.dtype(np.uint16)) for t in tensors) or "state" in key:
        return []  # in which form state lies is tried in test_state_dtype.py
    return splits(called(key.split(":")[0], tensors, settings))


def pieces_make_the_whole(key: str, case: Case) -> None:
    kernel = key.split(":")[0]
    names, roles = SIGNATURES[kernel].tensors, SIGNATURES[kernel].roles
    for split in cuts(key, case):
        tensors, settings = case.build(np.random.default_rng(5), np.dtype("float64"), False)
        extents = {
            t.shape[split.axes[n]] for n, t in zip(names, tensors, strict=True) if n in split.axes and t is not None
        }
        (extent,) = extents
        if extent < 3:
            continue
        whole = [None if t is None else t.copy() for t in tensors]
        run(NUMPY, kernel, whole, settings)
        halves = []
        for at in ((0, extent // 3), (extent // 3, extent)):
            halves.append(piece(kernel, tensors, settings, split, at))
        for name, role, wanted, given, *found in zip(names, roles, whole, tensors, *halves, strict=True):
            if role == "Read" or wanted is None:
                continue
            if name in split.axes:
                made = np.concatenate(found, split.axes[name])
            elif not split.sums:
                made = found[1]
            else:
                made = found[0] + found[1] - (given if role == "Update" else 0)
            np.testing.assert_allclose(made, wanted, rtol=1e-9, atol=1e-9, err_msg=f"{name} of {split}", equal_nan=True)


def test_pieces_of_a_call_make_what_the_whole_call_makes():
    over_rows(pieces_make_the_whole, ((key, (key, case)) for key, case in ALL.items()))
