"""Bytes from what people write, and of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite.common.sizes import memory_size, tensor_bytes
from singa_lite.errors import ShapeError


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [
        (0, 0),
        (17, 17),
        (2.0**40, 2**40),
        (np.int64(5), 5),
        (10**30, 10**30),
        ("1 GiB", 2**30),
        ("1GB", 10**9),
        ("512 MiB", 512 * 2**20),
        (" 1.5 gib ", 3 * 2**29),
        (".5 KB", 500),
        ("0.1 B", 0),
        ("12", 12),
        ("12b", 12),
        ("3.25 TiB", 13 * 2**38),
        ("2 pb", 2 * 10**15),
        ("0.3 GB", 300_000_000),
    ],
)
def test_bytes(given, nbytes):
    found = memory_size("limit", given)
    assert (found, type(found)) == (nbytes, int)


@pytest.mark.parametrize(
    "given", ["", "GB", "1 G", "1 GBs", "-1 GB", "1e3 MB", "1,5 GB", "1..5 GB", ".", "٣ GB", -1, 0.5]
)
def test_what_makes_no_bytes(given):
    with pytest.raises(ValueError, match="limit"):
        memory_size("limit", given)


@pytest.mark.parametrize("given", [None, True, [], b"1 GB", 1j])
def test_what_is_neither_number_nor_text(given):
    with pytest.raises(TypeError, match="limit"):
        memory_size("limit", given)


def test_bytes_of_tensors():
    assert tensor_bytes((3, 4), np.dtype("f4")) == 48
    assert tensor_bytes((), np.dtype("f8")) == 8
    assert tensor_bytes((2**80, 0), np.dtype("f8")) == 0
    assert tensor_bytes((2**63 - 1,), np.dtype("u1")) == 2**63 - 1
    assert tensor_bytes((np.int32(2**30), np.int32(4)), np.dtype("f4")) == 2**34
    for shape in ((2**63,), (2**32, 2**31), (10**25,)):
        with pytest.raises(ShapeError, match=r"less than 2\*\*63 bytes"):
            tensor_bytes(shape, np.dtype("u1"))
    with pytest.raises(ShapeError, match="extents of at least 0"):
        tensor_bytes((3, -1), np.dtype("f4"))
