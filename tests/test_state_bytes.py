"""The bytes of state that the docs say each optimizer has, as plans count them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from singa_lite import FeedForwardNet, layers, loss, optimizer

PAGE = Path(__file__).resolve().parents[1] / "docs" / "smaller_state.md"
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


def planned(name: str, state_dtype: str | None) -> float:
    """Bytes of state a parameter in the plan of a step."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Dense("large", 512, input_sample_shape=(256,)))
    net.compile(OPTIMIZERS[name](), state_dtype=state_dtype)
    return round(net.plan_batch(2).by_class.get("optimizer state", 0) / (513 * 256), 1)


@pytest.mark.skipif(not PAGE.is_file(), reason="this copy has no docs, the checkout has")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_page_has_the_bytes_of_plans(name):
    (row,) = re.findall(rf"^\| {re.escape(name)} \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    said = [float(cell) for cell in row.split("|")[3:6] if cell.strip() != "-"]
    kinds = (None, "bfloat16", "int8")[: len(said)]
    assert said == [planned(name, kind) for kind in kinds]
