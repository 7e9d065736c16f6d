"""Each law of the proof of rewriting is true: both sides are run on random numbers, in every kernel set that has them.

What passes replace is told by `laws.py` in words; here the words are made tensors, the left side is a record, and the
calls that the laws add to it must make the very values that the record made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from kernel_case import Case, garbage, run
from kernel_cases import CASES
from kernel_sets import kernel_sets
from programs import instructions, whole
from singa_lite.compiler.ir.laws import LAWS, Law, LawCall, activations
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.ir.splits import Split, splits
from singa_lite.compiler.proof import added_calls
from singa_lite.compiler.proof.added_calls import obey
from singa_lite.compiler.proof.calls import Call, Calls
from singa_lite.compiler.proof.values import Memory, Numbers
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.state_format import BLOCKED
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.tensor import contiguous_strides

IMAGES, POOLED, ROWS, COLUMN = (2, 3, 5, 4), (2, 3, 2, 2), (5, 4), (4,)
CHANNELS = dict.fromkeys(("gamma", "beta", "rm", "rv", "mean", "inv_std", "dgamma", "dbeta"), (3,))
CHANNELS |= dict.fromkeys(("running_mean", "running_var"), (3,))
#: Shapes of the words of a law, by the kernels that its left side begins with; of all others that of `""`.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "conv2d": {"x": IMAGES, "weight": (6, 3, 3, 3), "bias": (6,), "": (2, 6, 5, 4)},
    "linear": {"x": (5, 3), "weight": (3, 4), "bias": COLUMN, "": ROWS},
    "add": {"": ROWS},
    "batch_norm": {**CHANNELS, "": IMAGES},
    "batch_normalize": {**CHANNELS, "": IMAGES},
    "batch_norm_derivative": {**CHANNELS, "": IMAGES},
    "$m_derivative": {**CHANNELS, "": IMAGES},
    "$m": {"p": POOLED, "i": POOLED, "": IMAGES},
    "max_pool2d": {**dict.fromkeys("pigrj", POOLED), "": IMAGES},
    "matmul": {"x": (5, 3), "dy": ROWS, "dweight": (3, 4), "dbias": COLUMN},
    "embedding_gradient": {"ids": (6,), "dy": (6, 4), "rate": (), "c": (), "": (9, 4)},
    "softmax_cross_entropy": {**dict.fromkeys(("target", "losses", "dlosses"), (5,)), "": ROWS},
}
SETTINGS: dict[str, Any] = {
    "groups": 1,
    "momentum": 0.1,
    "epsilon": 1e-5,
    "transpose_a": True,
    "transpose_b": False,
    "axis": 1,
    "first": 0,
    "padding": -1,
    "hyper": SgdHyper(momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=0.5),
    "share": 0.1,
}
WINDOWS = {"conv2d": Window((3, 3), (1, 1), (1, 1, 1, 1)), "max_pool2d": Window((2, 2), (2, 2))}
INTEGERS = {"i": "u1", "j": "u1", "ids": "i8", "target": "i8", "c": "i8", "rate": "f8"}


def sides() -> Iterator[Any]:
    """(law, activation, zeros among the numbers) of each law that can be tried."""
    for index, law in enumerate(LAWS):
        variable = next((part.kernel[:2] for part in law.left if part.kernel.startswith("$")), "")
        alone = ["", "relu"] if any(part.activated for part in law.left) else [""]
        for name in sorted(activations(variable)) if variable else alone:
            for zeros in (False, True):
                yield pytest.param(law, name, zeros, id=f"{index}-{law.right[-1].kernel}-{name}-{zeros}")


def named(part: LawCall, activation: str) -> str:
    return activation + part.kernel[2:] if part.kernel.startswith("$") else part.kernel


def recorded(law: Law, activation: str) -> tuple[list[Instruction], dict[str, Operand]]:
    """The left side as instructions in an order in which they can run, and the operands of its words."""
    shapes = SHAPES[law.left[0].kernel]
    operands: dict[str, Operand] = {}
    for word in (word.before for part in law.left for word in part.words):
        if word != "-" and word not in operands:
            operands[word] = whole(len(operands), *shapes.get(word, shapes.get("", ())), dtype=INTEGERS.get(word, "f4"))
    written = {word for part in law.left for word in outputs(part, activation)}
    left, made, calls = list(law.left), set(operands) - written, []
    while left:
        part = next(p for p in left if {w.before for w in p.words} - set(outputs(p, activation)) <= {*made, "-"})
        left.remove(part)
        made |= set(outputs(part, activation))
        calls.append(call_of(part, activation, operands))
    return list(instructions(*calls)), operands


def outputs(part: LawCall, activation: str) -> list[str]:
    """The words of what it alone writes."""
    roles = SIGNATURES[named(part, activation)].roles
    return [word.before for word, role in zip(part.words, roles, strict=True) if role == "Write"]


def call_of(part: LawCall, activation: str, operands: dict[str, Operand]) -> Any:
    kernel = named(part, activation)
    settings = {name: SETTINGS[name] for name in SIGNATURES[kernel].settings if name in SETTINGS}
    if "window" in SIGNATURES[kernel].settings:
        settings["window"] = WINDOWS[kernel.removesuffix("_derivative")]
    if part.activated and activation:
        settings["activation"] = activation
    return kernel, tuple(operands.get(word.before) for word in part.words), settings


class Machine:
    """Runs calls over arrays by the numbers of their values."""

    def __init__(self, kernels: KernelSet, seed: int, zeros: bool) -> None:
        self.kernels, self.zeros = kernels, zeros
        self.random = np.random.default_rng(seed)
        self.values: dict[int, np.ndarray] = {}

    def start(self, operand: Operand) -> np.ndarray:
        """Normal numbers, ids, or those above zero that a variance wants."""
        if operand.dtype.kind in "iu":
            return np.asarray(self.random.integers(0, 4, operand.shape), operand.dtype)
        made = np.asarray(self.random.standard_normal(operand.shape), operand.dtype)
        if self.zeros and made.ndim:
            made = np.where(self.random.random(made.shape) < 0.3, np.copysign(made.dtype.type(0), made), made)
        return made

    def run(self, call: Call) -> dict[int, np.ndarray]:
        """What the call makes, by value. KeyError where the kernels lack it."""
        arrays: list[Any] = []
        for operand, read in zip(call.instruction.operands, call.reads, strict=True):
            if operand is None:
                arrays.append(None)
            elif read is None:
                arrays.append(np.full(operand.shape, 0xFF, operand.dtype))
            else:
                arrays.append(self.values.setdefault(read, self.start(operand)).reshape(operand.shape).copy())
        kernel, settings = call.instruction.kernel, call.instruction.settings
        scratch = np.zeros(self.kernels.scratch_bytes(kernel, arrays, settings), np.uint8)
        with np.errstate(all="ignore"):
            self.kernels.prepare(kernel, tuple(arrays), scratch, settings)()
        return {value: array for value, array in zip(call.writes, arrays, strict=True) if value is not None}


@pytest.mark.parametrize(("law", "activation", "zeros"), list(sides()))
def test_both_sides_of_a_law_make_the_same(law: Law, activation: str, zeros: bool):
    record, _operands = recorded(law, activation)
    calls = Calls(Numbers())
    memory = Memory(calls.numbers, {})
    for instruction in record:
        calls.record(memory, instruction)
    before = [call for some in calls.by_kernel.values() for call in some]
    rights = [named(part, activation) for part in law.right]
    obey(calls, rights)
    added = [call for name in rights for call in calls.by_kernel[name] if not any(call is one for one in before)]
    assert {call.instruction.kernel for call in added} == set(rights)
    tried = [kernels.name for kernels in kernel_sets() if same_in(kernels, calls, record, added, zeros)]
    fused = {activation or "other"} & {name for s in kernel_sets() for kernel, name in s.fusions if kernel == rights[0]}
    assert tried or not fused, "a kernel set has it, and none was tried"


@pytest.mark.parametrize("law", [pytest.param(law, id=f"{n}-{law.right[-1].kernel}") for n, law in enumerate(LAWS)])
def test_the_proof_believes_no_match_that_the_search_proposes(monkeypatch, law: Law):
    """Passes use the same search: where it proposes calls that do not hang together, no law is obeyed."""
    activation = "relu" if any("$" in part.kernel for part in law.left) else ""
    calls = Calls(Numbers())
    memory = Memory(calls.numbers, {})
    for number, instruction in enumerate(recorded(law, activation)[0]):
        operands = (o and o._replace(block=1000 * number + o.block) for o in instruction.operands)
        calls.record(memory, instruction.with_operands(tuple(operands)))
    known = sum(map(len, calls.by_kernel.values()))
    pick = {call.instruction.kernel: call for some in calls.by_kernel.values() for call in some}
    proposed = tuple(pick[named(part, activation)] for part in law.left)
    monkeypatch.setattr(added_calls, "matches", lambda pattern, table, first: [proposed])
    obey(calls, [named(part, activation) for part in law.right])
    assert sum(map(len, calls.by_kernel.values())) == known


def same_in(kernels: KernelSet, calls: Calls, record: list[Instruction], added: list[Call], zeros: bool) -> bool:
    """Whether these kernels have all of it; then both sides make the same."""
    machine = Machine(kernels, 7, zeros)
    for instruction in record:
        machine.values |= machine.run(calls.by_number[instruction.number])
    compared = 0
    for call in added:
        try:
            made = machine.run(call)
        except (KeyError, ValueError, TypeError):
            return False
        for value, array in made.items():
            if value in machine.values:
                np.testing.assert_allclose(array, machine.values[value].reshape(array.shape), rtol=2e-5, atol=2e-6)
                compared += 1
        machine.values |= {value: array for value, array in made.items() if value not in machine.values}
    assert compared, "nothing of the right side is there to the left"
    return True


# --- pieces of a call make what the whole call makes, row by row

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
