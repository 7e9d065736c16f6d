"""The bytes of state that the docs say each optimizer has, as plans count them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singa_lite import FeedForwardNet, layers, loss, optimizer

DOCS = Path(__file__).resolve().parents[1] / "docs"
OPTIMIZERS = {
    "`SGD()`": optimizer.SGD,
    "`SGD(momentum=0.9)`": lambda: optimizer.SGD(momentum=0.9),
    "`RMSProp`": optimizer.RMSProp,
    "`AdaGrad`": optimizer.AdaGrad,
    "`Lion`": optimizer.Lion,
    "`Muon`": optimizer.Muon,
    "`Adafactor`": optimizer.Adafactor,
    "`AdamW`": optimizer.AdamW,
    "`AdamW(amsgrad=True)`": lambda: optimizer.AdamW(amsgrad=True),
}


STORED = {}, {"parameter_dtype": "bfloat16"}, {"parameter_dtype": "bfloat16", "rounding": "compensated"}

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="this copy has no docs, the checkout has")


def planned(name: str, *kinds: str, **options: Any) -> float:
    """Bytes of these kinds a parameter in the plan of a step."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Dense("large", 512, input_sample_shape=(256,)))
    net.compile(OPTIMIZERS[name](), **options)
    by_class = net.plan_batch(2).by_class
    return round(sum(by_class.get(kind, 0) for kind in kinds) / (513 * 256), 1)


def rows(page: str) -> list[list[str]]:
    """Cells of the rows of its tables, without the outer ones."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_page_has_the_bytes_of_plans(name):
    (row,) = (cells[2:] for cells in rows("smaller_state.md") if cells[0] == name)
    said = [float(cell) for cell in row if cell != "-"]
    kinds = (None, "bfloat16", "int8")[: len(said)]
    assert said == [planned(name, "optimizer state", state_dtype=kind) for kind in kinds]


def test_the_page_has_the_bytes_of_stored_parameters_with_their_state():
    wrong, told = [], set[str]()
    for told_as, *cells in rows("bfloat16_parameters.md"):
        name, *rest = told_as.split(", ")
        if name not in OPTIMIZERS:
            continue
        told.add(name)
        kept = {"state_dtype": "int8"} if "int8 state" in rest else {}
        made = [planned(name, "parameters", "optimizer state", **kept, **options) for options in STORED]
        if [float(cell) for cell in cells] != [round(each, 0) for each in made]:
            wrong.append((told_as, cells, made))
    assert not wrong and told == {"`SGD()`", "`SGD(momentum=0.9)`", "`Lion`", "`Adafactor`", "`Muon`", "`AdamW`"}
