"""The derivative of an activation within that of the normalisation before it: which are joined, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import Call, call, clip, copy, fill, permuted, program, relu, whole
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction, Operand, Phase, again
from singa_lite.passes.fuse import fused
from singa_lite.passes.norm_derivative import masked_within
from singa_lite.passes.program import Program
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.repeats import ONCE, Repeater
from singa_lite.passes.schedule import Schedule

SHAPE, C = (5, 3, 4, 2), 3
X, DY, OTHER = (whole(block, *SHAPE) for block in (0, 1, 2))
GAMMA, BETA, RUNNING, RUNNING_VAR = (whole(block, C) for block in (3, 4, 5, 6))
Z, Y, DZ, DX = (whole(block, *SHAPE) for block in (10, 11, 12, 13))
MEAN, INV_STD, DGAMMA, DBETA = (whole(block, C) for block in (14, 15, 16, 17))
HELD = [0, 1, 2, 3, 4, 5, 6, 13, 16, 17, 20]
FUSIONS = NUMPY.fusions


def norm(y: Operand = Z, x: Operand = X) -> Call:
    tensors = x, GAMMA, BETA, RUNNING, RUNNING_VAR, y, MEAN, INV_STD
    return call("batch_norm", *tensors, momentum=0.1, epsilon=1e-3)


def masked(kernel: str = "relu", dy: Operand = DY, y: Operand = Y, dx: Operand = DZ) -> Call:
    return call(f"{kernel}_derivative", dy, y, dx)


def back(dy: Operand = DZ, x: Operand = X, gamma: Operand = GAMMA, dx: Operand = DX) -> Call:
    return call("batch_norm_derivative", dy, x, gamma, MEAN, INV_STD, dx, DGAMMA, DBETA)


def after(*calls: Call, fusions: frozenset[tuple[str, str]] = FUSIONS) -> Program:
    """The program behind both passes, where a kernel set does these in one go."""
    made = program(*calls, held=HELD)
    return masked_within(fused(replace(made, target=replace(made.target, fusions=fusions))))


def kernels(*calls: Call) -> list[str]:
    return [i.kernel for i in after(*calls).instructions]


BOTH = ["batch_norm_activation", "batch_norm_activation_derivative"]
APART = ["batch_norm_activation", "relu_derivative", "batch_norm_derivative"]


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_both_directions_become_one_call_each(activation):
    made = after(norm(), call(activation, Z, Y), masked(activation), back())
    forward, backward = made.instructions
    assert [forward.kernel, backward.kernel] == BOTH
    settings = {"momentum": 0.1, "epsilon": 1e-3, "activation": activation}
    assert (forward.by_name["y"], dict(forward.settings)) == (Y, settings)
    assert backward.operands == (DY, X, GAMMA, BETA, MEAN, INV_STD, DX, DGAMMA, DBETA)
    assert backward.settings == {"activation": activation}
    for one in made.instructions:
        assert one.scratch_bytes == NUMPY.scratch_bytes(one.kernel, one.operands, one.settings)


def test_what_stands_between_and_around_stays():
    assert kernels(fill(OTHER), norm(), relu(Z, Y), copy(Y, OTHER), masked(), clip(OTHER), back()) == [
        "fill",
        BOTH[0],
        "copy",
        "clip_elements",
        BOTH[1],
    ]


def test_without_the_sets_kernels_nothing_changes():
    calls = norm(), relu(Z, Y), masked(), back()
    given = program(*calls, held=HELD)
    given = replace(given, target=replace(given.target, fusions=frozenset()))
    assert masked_within(fused(given)) is given
    only = frozenset({("batch_norm", "relu"), ("batch_norm_derivative", "relu6")})
    assert [i.kernel for i in after(*calls, fusions=only).instructions] == APART


@pytest.mark.parametrize(
    "calls",
    [
        [norm(), relu(Z, Y), masked(), copy(DZ, OTHER), back()],  # somebody else reads what is masked
        [norm(), relu(Z, Y), masked(), back(x=OTHER)],  # of another x
        [norm(), relu(Z, Y), masked(), back(gamma=BETA)],  # of another gamma
        [norm(), relu(Z, Y), clip(X), masked(), back()],  # x has changed
        [norm(), relu(Z, Y), masked(), clip(BETA), back()],  # beta has changed
        [norm(), relu(Z, Y), masked(), clip(MEAN), back()],
        [norm(), relu(Z, Y), masked(), clip(DY), back()],  # what is masked has changed
        [norm(), relu(Z, Y), clip(Y), masked(), back()],  # the mask is of something else
        [norm(), relu(Z, Y), masked(), back(dx=permuted(13, SHAPE, (0, 2, 3, 1)))],  # it lies otherwise
    ],
    ids=["read", "x", "gamma", "x changed", "beta", "mean", "dy", "y", "strides"],
)
def test_what_stays_apart(calls):
    assert [k for k in kernels(*calls) if k not in ("clip_elements", "copy")] == APART


def test_a_mask_that_is_there_anyway_is_not_made_again():
    """Where the backward part reads the activation's result besides."""
    given = program(norm(), relu(Z, Y), copy(Y, OTHER), masked(), back(), held=HELD)
    forward, besides = fused(given), replace(given.instructions[2], phase=Phase.GRADIENT)
    assert len(masked_within(forward).instructions) == 3
    made = forward.with_instructions([forward.instructions[0], besides, *forward.instructions[2:]])
    assert masked_within(made) is made


def test_another_activations_derivative_stays():
    assert kernels(norm(), relu(Z, Y), masked("tanh"), back()) == [BOTH[0], "tanh_derivative", "batch_norm_derivative"]


def test_a_normalisation_whose_result_is_read_besides_is_not_joined():
    calls = norm(), relu(Z, Y), copy(Z, OTHER), masked(), back()
    assert kernels(*calls) == ["batch_norm", "relu", "copy", "relu_derivative", "batch_norm_derivative"]


# --- repeats of the fused call ------------------------------------------------------------------------------


def step_with_a_repeat(monkeypatch) -> tuple[Program, Program]:
    """A program behind the passes, and the same with y made again where it is read last."""
    monkeypatch.setattr("singa_lite.passes.repeats.LEAST_GAP", 1)
    made = after(norm(), relu(Z, Y), copy(Y, OTHER), fill(OTHER), fill(OTHER), copy(Y, whole(20, *SHAPE)))
    schedule = Schedule(Repeater(made))
    assert schedule.changed({Y.block: ONCE}) is not None
    return made, schedule.program()


def changed(given: Program, position: int, **fields: object) -> Program:
    """The program with one instruction changed."""
    made = list(given.instructions)
    made[position] = replace(made[position], **fields)
    return given.with_instructions(made)


def test_it_is_repeated_from_kept_statistics_with_its_activation(monkeypatch):
    made, repeated = step_with_a_repeat(monkeypatch)
    (one,) = (i for i in repeated.instructions if i.repeats is not None)
    assert (one.kernel, one.settings) == ("batch_normalize_activation", {"activation": "relu"})
    assert one.operands[:5] == (X, GAMMA, BETA, MEAN, INV_STD)
    assert one.scratch_bytes == NUMPY.scratch_bytes(one.kernel, one.operands, one.settings)
    check_reads(made, repeated, {})


def test_the_proof_finds_planted_faults(monkeypatch):
    made, repeated = step_with_a_repeat(monkeypatch)
    position = next(p for p, i in enumerate(repeated.instructions) if i.repeats is not None)
    one: Instruction = repeated.instructions[position]
    x, gamma, beta, mean, inv_std, y = one.operands
    original = next(i for i in made.instructions if i.number == one.repeats)
    plain = again(replace(original, kernel="batch_norm", settings={"momentum": 0.1, "epsilon": 1e-3}))
    faults = [
        {"settings": {"activation": "relu6"}},  # another activation
        {"kernel": plain.kernel, "settings": plain.settings},  # none
        {"operands": (x, beta, gamma, mean, inv_std, y)},  # vectors exchanged
        {"operands": (x, gamma, beta, RUNNING, RUNNING_VAR, y)},  # other statistics
        {"operands": (OTHER, gamma, beta, mean, inv_std, y)},  # another x
        {"kernel": original.kernel, "operands": original.operands, "settings": original.settings},  # they move twice
    ]
    for fault in faults:
        with pytest.raises(PlanError):
            check_reads(made, changed(repeated, position, **fault), {})
