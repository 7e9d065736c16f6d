"""Histories as curves."""

from __future__ import annotations

import pytest

import skips
from singa_lite.fit import History

skips.library("matplotlib")


def a_history() -> History:
    history = History()
    for epoch in range(3):
        history.append(loss=1.0 / (epoch + 1), val_loss=1.5, accuracy=0.5, samples_per_second=10.0, high_water=7)
        history.append(heads={"a": 1.0})
    return history


def test_training_and_validation_share_an_axis(tmp_path):
    figure = a_history().plot()
    assert [axis.get_title() for axis in figure.axes] == ["loss", "accuracy"]
    loss, accuracy = figure.axes
    assert [line.get_label() for line in loss.lines] == ["training", "validation"]
    assert list(loss.lines[0].get_xdata()) == [1, 2, 3]
    assert list(loss.lines[0].get_ydata()) == [1.0, 0.5, 1 / 3]
    assert len(accuracy.lines) == 1
    assert [axis.get_title() for axis in a_history().plot("accuracy").axes] == ["accuracy"]
    figure.savefig(tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
    for history, names in ((a_history(), ["lost"]), (History(), [])):
        with pytest.raises(ValueError):
            history.plot(*names)
