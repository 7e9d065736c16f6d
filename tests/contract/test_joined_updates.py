"""Joined updates do, bit for bit, what the single ones do, in every kernel set; and keep what every kernel promises."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from every_set import every_own_set
from joined_cases import JOINED
from kernel_case import run
from layouts import c_order, turned
from singa_lite.kernels.cuda_kernels import updates
from singa_lite.kernels.cuda_kernels.assumed import NoCompiler
from singa_lite.kernels.interface import joined_name, joined_of
from singa_lite.kernels.kernel_set import KernelSet, apart, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.kernel_call import Calls
from singa_lite.testing.promises import allocates_nothing, scratch_rule_needs_forms_alone
from test_update_values import SGD, arguments, every_update, gaps

every_case = pytest.mark.parametrize("case", JOINED)


def built(case: str, dtype: Any = np.float32) -> tuple[str, list[Any], dict[str, Any]]:
    """Name of the joined calls, tensors and settings."""
    return case.split(":")[0], *JOINED[case].build(np.random.default_rng(7), np.dtype(dtype), False)


def singly(kernels: KernelSet, name: str, tensors: list[Any], settings: dict[str, Any]) -> list[Any]:
    """The tensors behind single calls."""
    for one in apart(joined_of(name)[0], tensors):
        run(kernels, joined_of(name)[0], list(one), settings)
    return tensors


def assert_same(got: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert (one is None) == (other is None)
        assert one is None or one.tobytes() == other.tobytes()


@every_own_set
@every_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_make_what_single_calls_make(kernels: KernelSet, case, dtype):
    name, tensors, settings = built(case, dtype)
    wanted = singly(kernels, name, built(case, dtype)[1], settings)
    assert wanted[2].tobytes() != tensors[2].tobytes()
    run(kernels, name, tensors, settings)
    assert_same(tensors, wanted)


@every_own_set
@every_case
def test_they_keep_the_promises_of_every_kernel(kernels: KernelSet, case):
    make = Calls(kernels, *built(case))
    over_rows(lambda one: one(make), [(p.__name__, (p,)) for p in (allocates_nothing, scratch_rule_needs_forms_alone)])


@every_own_set
@every_update
@pytest.mark.parametrize("lay", [c_order, turned, gaps])
def test_other_layouts_and_rates_that_are_no_number(kernels: KernelSet, name, states, settings, lay):
    """And one update that does not count."""

    def given() -> list[Any]:
        first, second, third = arguments(states, (5, 29)), arguments(states, (6, 4), lay), arguments(states, (31,))
        third[1][...] = np.nan
        return [*first, *second, *third]

    found = given()
    run(kernels, joined_name(name, 3), found, settings)
    assert_same(found, singly(kernels, joined_name(name, 3), given(), settings))
    assert_same(apart(name, found)[2][2:], apart(name, given())[2][2:])


def test_only_small_tensors_in_a_row_are_worth_it():
    most = partial(updates.joins(NoCompiler())["sgd"].most, settings={"hyper": SGD})
    assert most(specs_of(arguments(1, (5, 29)))) == updates.MOST == most(specs_of(arguments(0, (1,))))
    assert most(specs_of(arguments(1, (256, 256)))) == updates.MOST
    assert most(specs_of(arguments(1, (256, 257)))) == 0
    assert most(specs_of(arguments(1, (6, 4), gaps))) == 0
    gradient, *others = arguments(1, (6, 4))
    assert most(specs_of([gradient.astype(np.float64), *others])) == 0
    assert most(specs_of([turned(gradient), *others])) == 0
    assert NUMPY.most_joined("sgd", [gradient, *others], {"hyper": SGD}) == 0, "on a CPU nothing is gained"
