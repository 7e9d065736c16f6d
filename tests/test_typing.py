"""What type checkers see of `singa_lite.layers`: the stub is that of its constructors.

That it says what a user wants is checked by mypy itself, over tests/typed.
"""

from __future__ import annotations

import layer_stubs


def test_the_stub_is_that_of_the_constructors():
    written = layer_stubs.STUB.read_text(encoding="utf-8")
    assert written == layer_stubs.text(), "python tests/layer_stubs.py writes it anew"
