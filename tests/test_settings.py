"""The table of options of `compile` that restrict each other: each row is refused, and the net stays as it was."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from misuse import Row, assert_all_refused, refused, row
from singa_lite import FeedForwardNet, layers, loss, optimizer, rewriting
from singa_lite.parallel import DataParallel
from singa_lite.parallel.communicator import Communicator
from singa_lite.training.settings import ATTRIBUTES, CONSTRAINTS, DEFAULTS, NAMES, Constraint, Settings

#: {option: a value that asks for it}.
GIVEN: dict[str, Any] = {
    "loss_weights": {"dense": 0.5},
    "freeze": "dense",
    "memory_budget": "1 GiB",
    "micro_batches": 2,
    "offload": "host",
    "order": "dependencies",
    "workers": 2,
    "precision": "float16",
    "float32_layers": ["dense"],
    "accumulate": 2,
    "loss_scale": 8.0,
    "step": lambda net, call: None,
    "nets": {"other": object()},
    "keep": ["dense"],
    "limits": {"gradients": "1 MiB"},
    "rules": [rewriting.Rule("twice", lambda x: x * 2.0, lambda x: 2.0 * x)],
    "state_dtype": "bfloat16",
    "rounding": "compensated",
    "parameter_dtype": "float32",
}
#: {other option: a value that restricts an option by itself}; where it is not that of GIVEN.
REFUSED: dict[tuple[str, str], dict[str, Any]] = {
    ("nets", "step"): {},
    ("workers", "order"): {},
    ("float32_layers", "precision"): {},
    ("rounding", "parameter_dtype"): {},
}


class Two(Communicator):
    """A rank of two whose other one never comes."""

    rank, size = 0, 2

    def exchange(self, given):
        raise AssertionError("nobody answers")

    spread = wait = abort = exchange


def two_ranks() -> DataParallel:
    """The first of two ranks, with statistics of both."""
    return DataParallel(Two(), 1 << 20, 2 << 20, None, True, 9)


def made() -> FeedForwardNet:
    net = FeedForwardNet(seed=3)
    net.add(layers.Dense("hidden", 4, input_sample_shape=(3,)))
    net.add(layers.Dense("dense", 2))
    net.compile(optimizer.SGD(0.1), loss.MeanSquaredError())
    net.loss = None
    return net


def trained(net: FeedForwardNet) -> None:
    net.compile(optimizer.SGD(0.1), loss.MeanSquaredError())
    net.train_one_batch(np.ones((4, 3), "f"), np.ones((4, 2), "f"))


def example(constraint: Constraint) -> dict[str, Any]:
    """Options that the row refuses."""
    option, other = constraint.option, constraint.other
    given = {} if option == "parallel" else {option: GIVEN[option]}
    if option == "parallel":
        given["parallel"] = two_ranks()
    if (option, other) in REFUSED:
        return given | REFUSED[option, other]
    return given | {other: False if other == "graph" else GIVEN[other]}


def refusal(constraint: Constraint) -> Row:
    options = example(constraint)
    words = (constraint.option, constraint.other) if "precision" not in constraint.wanted else (constraint.option,)
    return row(lambda net: net.compile(optimizer.SGD(0.1), **options), ValueError, *words, net=made, then=trained)


def test_each_row_of_the_table_is_refused_and_changes_nothing():
    assert_all_refused(map(refusal, CONSTRAINTS))


def test_each_row_refuses_by_itself():
    """No row is there in vain: its example passes all others, or only later ones refuse it too."""
    for place, constraint in enumerate(CONSTRAINTS):
        settings = Settings(**{name: value for name, value in example(constraint).items() if name in NAMES})
        for earlier in CONSTRAINTS[:place]:
            earlier.check(settings)
        refused(lambda settings=settings, one=constraint: one.check(settings), ValueError, constraint.option)


def test_settings_are_the_keywords_of_compile():
    keywords = {name: each.default for name, each in signature(FeedForwardNet.compile).parameters.items()}
    assert {name: keywords[name] for name in NAMES} == dict(DEFAULTS)
    assert [name for name in keywords if name not in NAMES] == ["self", "optimizer", "loss", "metric"]


def test_settings_follow_the_attributes_of_a_net():
    net = made()
    values = {"loss_weights": {"dense": 2.0}, "freeze": "dense", "micro_batches": 3, "on_nan": "warn"}
    for name in ATTRIBUTES:
        setattr(net, name, values[name])
    assert {name: net.compiled_as[name] for name in ATTRIBUTES} == values
    assert {name: getattr(net.trainer.settings, name) for name in ATTRIBUTES} == values


def test_a_net_that_is_not_compiled_has_no_settings():
    net = FeedForwardNet()
    assert net.compiled_as == {}
    assert net.trainer.settings is None
