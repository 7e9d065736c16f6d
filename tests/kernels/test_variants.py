"""Which of several ways of a call is chosen: by the table, by the rule, and where neither can."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from singa_lite.kernels import variants as module
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.variants import Variants, chosen_by

SPECS = tuple(TensorSpec(shape, np.dtype("f4"), (4,) * len(shape)) for shape in ((3, 5), (3, 5)))


def made(**able: bool) -> Variants:
    """Variants of relu that can or cannot do a call; the rule takes the second."""
    names = list(able)

    def builder(name):
        return lambda x, y: SimpleNamespace(variant="", by=name) if able[name] else None

    return Variants("relu", {name: builder(name) for name in names}, lambda x, y: names[1], lambda: "lib 1", lambda: 2)


def test_by_the_rule_where_no_table_has_the_call():
    with chosen_by({}):
        routine = made(plain=True, fast=True, odd=True).routine(SPECS, {})
    assert (routine.variant, routine.by) == ("fast", "fast")


def test_by_the_table():
    variants = made(plain=True, fast=True, odd=True)
    with chosen_by({variants.call_name(SPECS, {}): "odd", "another call": "plain"}):
        assert variants.routine(SPECS, {}).variant == "odd"


@pytest.mark.parametrize("chosen", ["fast", "odd"])
def test_what_cannot_do_a_call_leaves_it_to_the_first_that_can(chosen):
    variants = made(plain=True, fast=False, odd=False)
    with chosen_by({variants.call_name(SPECS, {}): chosen}):
        assert variants.routine(SPECS, {}).variant == "plain"
    assert variants.default(SPECS, {}) == "plain"


def test_none_can():
    with chosen_by({}):
        assert made(plain=False, fast=False).routine(SPECS, {}) is None


def test_a_name_of_no_variant_is_told_and_the_rule_decides():
    variants = made(plain=True, fast=True)
    with (
        chosen_by({variants.call_name(SPECS, {}): "faster"}),
        pytest.warns(UserWarning, match="relu.*'faster'"),
    ):
        assert variants.routine(SPECS, {}).variant == "fast"


def test_a_call_is_known_by_shapes_dtypes_settings_and_threads_not_by_strides():
    variants = made(plain=True, fast=True)
    name = variants.call_name(SPECS, {})
    assert name == "relu: x (3, 5) float32, y (3, 5) float32; ; threads=2"
    turned = tuple(TensorSpec(spec.shape, spec.dtype, (4, 12)) for spec in SPECS)
    assert variants.call_name(turned, {}) == name
    wider = (SPECS[0], TensorSpec((5, 3), np.dtype("f4"), (4, 4)))
    assert variants.call_name(wider, {}) != name
    assert variants.call_name(SPECS, {"axis": 1}) != name
    assert variants.call_name(SPECS, {"a": 1, "b": 2}) == variants.call_name(SPECS, {"b": 2, "a": 1})


def test_another_table_has_another_stamp_until_its_end():
    before = module.stamp()
    with chosen_by({}):
        first = module.stamp()
        with chosen_by({"a": "b"}):
            assert module.stamp() not in (before, first)
            assert module.choices("lib 1") == {"a": "b"}
        assert module.choices("lib 1") == {}
    assert module.stamp() != first
