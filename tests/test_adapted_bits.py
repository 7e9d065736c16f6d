"""Adapters over the quantised blocks of a file: losses have equal bits however the steps are planned and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, models, optimizer

IDS, TIME, STEPS = 4501, 256, 4
TEXTS = np.random.default_rng(5).integers(0, IDS, (STEPS, 2, TIME + 1))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A file of unequal sizes, whose head is so large that its scores are made by tiles."""
    sizes = {"width": 96, "layers": 5, "heads": 3, "kv_heads": 1, "hidden_size": 160, "vocabulary": IDS}
    config = models.LanguageConfig(architecture="llama", **sizes, tied=True)
    path = tmp_path_factory.mktemp("base") / "base.gguf"
    models.language_model(config, TIME, seed=1).save(path, quantization="q4_0")
    return path


def adapted(base: Path, budget: int | None = None) -> FeedForwardNet:
    net = models.load(base, TIME, device=device.new_cpu(), seed=3)
    net.add_lora(4, 8.0, dropout=0.1)
    net.compile(optimizer.AdamW(lr=1e-2), memory_budget=budget)
    return net


def trained(net: FeedForwardNet, batches: np.ndarray) -> list[str]:
    """Losses as bits."""
    return [float(net.train_one_batch(ids[:, :-1], ids[:, 1:])[0]).hex() for ids in batches]


def resumed(base: Path, folder: Path) -> list[str]:
    """Losses of a run that is stopped in the middle and gone on with by a new net."""
    net = adapted(base)
    losses = trained(net, TEXTS[:2])
    net.save(folder / "middle.npz")
    net = adapted(base)
    net.load(folder / "middle.npz")
    return losses + trained(net, TEXTS[2:])


def within(share: float) -> Callable[[Path, Path], list[str]]:
    """A run within a budget that leaves this share of the arena without one."""

    def run(base: Path, folder: Path) -> list[str]:
        free = adapted(base).plan_batch(2)
        net = adapted(base, free.total_bytes - int((1 - share) * free.arena_bytes))
        losses = trained(net, TEXTS)
        assert net.memory_plan.recomputed
        return losses

    return run


@pytest.mark.parametrize(
    ("run", "environment"),
    [
        (within(0.8), {}),
        (within(0.6), {}),
        (lambda base, folder: trained(adapted(base), TEXTS), {"SINGA_LITE_PLAN": "off"}),
        (resumed, {}),
    ],
    ids=["within 0.8", "within 0.6", "unplanned", "resumed"],
)
def test_losses_have_equal_bits(base, tmp_path, monkeypatch, run, environment):
    wanted = trained(adapted(base), TEXTS)
    assert len(set(wanted)) == STEPS
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(base, tmp_path) == wanted
