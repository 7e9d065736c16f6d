"""What type checkers and `help` see of constructors: the stub of `singa_lite.layers`, and all that a constructor takes.

That it says what a user wants is checked by mypy itself, over tests/typed.
"""

from __future__ import annotations

import inspect
import pydoc

import pytest

import layer_stubs
from singa_lite import layers, optimizer


def test_the_stub_is_that_of_the_constructors():
    written = layer_stubs.STUB.read_text(encoding="utf-8")
    assert written == layer_stubs.text(), "python tests/layer_stubs.py writes it anew"


def test_each_constructor_says_all_that_it_takes():
    """What a base's constructor takes stands in the signature of each class."""
    optimizers = [kind for kind in vars(optimizer).values() if isinstance(kind, type)]
    for kind in (*layer_stubs.kinds().values(), *optimizers):
        kinds = {each.kind for each in inspect.signature(kind).parameters.values()}
        assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}, kind
    assert "return_sequences: 'bool' = False" in pydoc.render_doc(layers.LSTM)
    ours = inspect.signature(layers.DepthwiseConv2D).parameters
    assert list(ours)[:3] == ["name", "kernel", "stride"] and not {"nb_kernels", "groups"} & ours.keys()
    assert list(inspect.signature(optimizer.AdamW).parameters)[-3:] == ["amsgrad", "regularizer", "constraint"]


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda: layers.LSTM("a"), "LSTM: missing a required argument: 'hidden_size'"),
        (lambda: layers.GRU("a", 1, 0.0, 1, "linear", False, "concat"), "GRU: too many positional"),
        (lambda: layers.DepthwiseConv2D("a", groups=2), "DepthwiseConv2D: wanted an option of .*received groups=2"),
        (lambda: layers.AvgPooling2D("a", 3, kernel=2), "AvgPooling2D: multiple values for argument 'kernel'"),
    ],
)
def test_errors_of_arguments_name_the_class(make, culprit):
    with pytest.raises(TypeError, match=culprit):
        make()
