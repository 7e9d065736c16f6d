"""docs/gpu.md: which kernels a GPU device leaves to the host is what its kernel sets say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.libraries.assumed import NoCompiler, assumed
from singa_lite.kernels.interface import SIGNATURES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="this copy has no docs, the checkout has")

#: What begins the point that lists them; another one follows it, or an empty line.
POINT = re.compile(r"^- \*\*Still done on the host\*\*(.*?)(?=^- |^$)", re.MULTILINE | re.DOTALL)


def listed(page: str) -> set[str]:
    """The names in the point."""
    (point,) = POINT.findall(page)
    return set(re.findall(r"`(\w+)`", point))


def left_to_the_host() -> set[str]:
    """Kernels that no set of a GPU has, with the libraries that there may be."""
    libraries, fusions = assumed(0)
    made: Any = cuda(NoCompiler(), None, libraries, fusions)
    known = set[str]()
    while made is not None:
        known |= made.kernels.keys()
        made = made.fallback
    assert "matmul" in known
    return SIGNATURES.keys() - known


def test_the_page_lists_the_kernels_that_are_done_on_the_host():
    assert listed(PAGE.read_text(encoding="utf-8")) == left_to_the_host()
