"""`python -m singa_lite tune`: what it measures, chooses, prints and keeps; and nets that train by what it kept."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from in_process import start
from nets import all_bits
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite import __main__ as program
from singa_lite.commands import tuned_calls
from singa_lite.commands.tuned_calls import Timing, calls_of_net, measured, of_step, variants_of
from singa_lite.errors import DeviceError
from singa_lite.kernels import tuning_file
from singa_lite.kernels.choice import cpu_kernels
from singa_lite.kernels.tuning_file import read_tuning
from singa_lite.kernels.variants import using_choices

WAYS = ("direct", "product", "blocked")


@pytest.fixture(autouse=True)
def onednn():
    """The set that has several ways."""
    try:
        return cpu_kernels("onednn")
    except DeviceError as error:
        pytest.skip(f"{error}; pip install onednn-cpu-gomp")


class Always(dict):
    """A table by which every call goes one way."""

    def __init__(self, way: str) -> None:
        super().__init__({"": way})

    def get(self, call, default=None):
        """The way."""
        return self[""]


def small() -> FeedForwardNet:
    """Filters of several elements and of one, with strides and without."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
    net.add(layers.Conv2D("first", 8, 3, stride=2, input_sample_shape=(3, 11, 13)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.Conv2D("wide", 24, 1))
    net.add(layers.Activation("act2"))
    net.add(layers.Conv2D("strided", 16, 1, stride=2))
    net.add(layers.Conv2D("larger", 16, 3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    return net


def not_a_net() -> int:
    """For errors."""
    return 3


def broken() -> FeedForwardNet:
    """For errors."""
    raise KeyError("lost")


THIS = f"{__name__}:small"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Where the table is kept."""
    monkeypatch.setenv(tuning_file.VARIABLE, str(tmp_path / "cache" / "tuning.json"))
    monkeypatch.setattr(tuned_calls, "LEAST_TURNS", 1)
    monkeypatch.setattr(tuned_calls, "MOST_TURNS", 1)
    return tmp_path / "cache" / "tuning.json"


def tune(capsys, *arguments: str) -> tuple[int, str, str]:
    """Status, output and errors of the command."""
    status = program.main(["tune", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def library() -> str:
    """Of the set, with its version."""
    return variants_of(cpu_kernels("onednn"))["conv2d_gradient"].library()


def test_what_is_measured_is_kept_beside_what_was(capsys, file):
    status, out, err = tune(capsys, THIS, "--batch", "2")
    assert (status, err) == (0, "") and f"{file}: " in out
    first = json.loads(file.read_text())["calls"]
    assert all(name.startswith("conv2d_gradient: x (2, ") for name in first)
    assert all(entry["chosen"] in entry["milliseconds"] for entry in first.values())
    tune(capsys, THIS, "--batch", "3")
    both = json.loads(file.read_text())["calls"]
    assert first.items() <= both.items() and len(both) == 2 * len(first)
    assert read_tuning(library(), file).choices == {name: entry["chosen"] for name, entry in both.items()}


def test_a_damaged_file_is_replaced_and_told(capsys, file):
    file.parent.mkdir()
    file.write_text("{")
    status, out, _ = tune(capsys, THIS, "--batch", "2")
    assert status == 0
    assert "what it had before is gone" in out
    assert read_tuning(library(), file).choices


def test_a_dry_run_keeps_nothing(capsys, file, monkeypatch):
    assert tune(capsys, THIS, "--batch", "2", "--dry-run")[0] == 0
    assert not file.exists()
    monkeypatch.setenv(tuning_file.VARIABLE, "off")
    assert tune(capsys, THIS, "--batch", "2", "--dry-run")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), "--net"),
        ((THIS, "--net", "vgg16"), "both"),
        (("--net", "alexnet"), "'alexnet'"),
        (("small",), "'small'"),
        ((f"{__name__}:large",), "'large'"),
        ((f"{__name__}:WAYS",), "'WAYS'"),
        ((f"{__name__}:not_a_net",), "not_a_net()"),
        ((f"{__name__}:broken",), "broken()"),
        (("no.such.module:net",), "'no.such.module'"),
        ((THIS, "--batch", "0"), "--batch"),
        ((THIS, "--scratch", "much"), "--scratch"),
    ],
)
def test_bad_arguments(capsys, file, arguments, wanted):
    status, out, err = tune(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("python -m singa_lite tune: ") and wanted in err
    assert not file.exists()


# ---- what is chosen


def timing(monkeypatch, seconds: dict[str, float], more_scratch: int = 1 << 30) -> Timing:
    """Of a call whose ways take so long by a clock of ours."""
    (call,) = (c for c in calls_of_net("resnet50", 1, cpu_kernels("onednn")) if c.layer == "stage4_1_conv3")
    able = call.variants.routines(call.specs, call.settings)
    ways = [way for way in seconds if way in able]
    turn = count()

    def clock() -> float:
        at = next(turn)
        return seconds[ways[at // 2 % len(ways)]] * (at % 2)

    monkeypatch.setattr(tuned_calls, "LEAST_TURNS", 1)
    monkeypatch.setattr(tuned_calls, "MOST_TURNS", 1)
    found = measured(call, more_scratch, clock)
    assert found is not None
    return found


def test_the_fastest_is_chosen(monkeypatch):
    found = timing(monkeypatch, {"direct": 3.0, "product": 1.0, "blocked": 2.0})
    assert found.chosen == "product"
    found = timing(monkeypatch, {"direct": 1.0, "product": 3.0, "blocked": 2.0})
    assert found.chosen == "direct"
    assert found.gain == found.call.count * (found.seconds[found.default] - 1.0)


def test_the_rules_way_stays_where_another_is_hardly_faster(monkeypatch):
    default = timing(monkeypatch, dict.fromkeys(WAYS, 1.0)).default
    assert timing(monkeypatch, {**dict.fromkeys(WAYS, 0.98), default: 1.0}).chosen == default
    assert timing(monkeypatch, {**dict.fromkeys(WAYS, 0.96), default: 1.0}).chosen != default


# ---- nets


def trained(way: str, **options: object) -> dict[str, object]:
    """All parameters behind three steps in which filters' gradients go this way, where they can."""
    random = np.random.default_rng(1)
    x, y = random.standard_normal((6, 3, 11, 13), dtype=np.float32), random.integers(0, 5, 6)
    with using_choices(Always(way)):
        net = small()
        net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **options)
        for _ in range(3):
            net.train_one_batch(x, y)
        return all_bits(net.parameters())


@pytest.mark.parametrize("way", WAYS)
def test_budgeted_and_eager_steps_have_equal_bits_and_the_plan_names_the_way(way):
    planned = trained(way)
    assert trained(way, graph=False) == planned
    with using_choices(Always(way)):
        net = small()
        net.compile(optimizer.SGD(lr=0.05, momentum=0.9))
        least, rows = net.budget_curve(6)[-1][0], {row.layer: row.variant for row in net.plan_batch(6).variants}
    assert trained(way, memory_budget=least) == planned
    assert set(rows) == {"first", "wide", "strided", "larger"}
    assert way == "blocked" or rows["wide"] == way  # whether blocks are another layout for a call, the library says


PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from test_tuning import small
from singa_lite import optimizer
net = small()
net.compile(optimizer.SGD())
print({row.layer: row.variant for row in net.plan_batch(4).variants}["wide"])
"""


@pytest.mark.parametrize("way", ["product"])
def test_a_run_goes_by_the_users_file(way, tmp_path):
    net = small()
    net.compile(optimizer.SGD())
    calls = of_step(net.device.kernels, net.plan_batch(4).placed.planned.instructions)
    (name,) = (call.name for call in calls if call.layer == "wide")
    content = {tuning_file.NAME: 1, **tuning_file.origin(library()), "calls": {name: {"chosen": way}}}
    (tmp_path / "tuning.json").write_text(json.dumps(content))
    done = start(
        "-c", PROGRAM, str(Path(__file__).parent), SINGA_LITE_TUNING=tmp_path / "tuning.json", OMP_NUM_THREADS=1
    )
    assert done.stdout == f"{way}\n", done.stderr
