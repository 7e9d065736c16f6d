"""`compile(precision="bfloat16")`: what is stored narrow, what stays, how near results are, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import skips
from kernel_sets import kernel_sets
from nets import all_bits, state_of
from singa_lite import FeedForwardNet, Tensor, device, layers, loss, metric, optimizer, snapshots, tensor
from singa_lite.errors import PrecisionWarning
from singa_lite.graph_parts.budget_error import BudgetError

skips.library("ml_dtypes")
SETS = pytest.mark.parametrize("kernels", [kernels.name for kernels in kernel_sets()])
X = np.random.default_rng(2).normal(size=(13, 3, 14, 10)).astype(np.float32)
Y = np.random.default_rng(3).integers(0, 5, 13)


def ended(net: FeedForwardNet, chosen: optimizer.Optimizer, **options: Any) -> FeedForwardNet:
    """The net with its dense layers, compiled, without the warning that there are no kernels of its own."""
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("hidden", 11))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("scores", 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.compile(chosen, **options)
    return net


def built(
    kernels: str = "numpy", lr: float = 0.05, momentum: float = 0.9, dropout: float = 0.25, **options: Any
) -> FeedForwardNet:
    """A net with a branch, all that is stored narrow, and a dropout; equal weights and numbers each time."""
    cpu = device.new_cpu(kernels=kernels)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=cpu, seed=4)
    net.add(layers.Conv2D("conv1", 6, 3, input_sample_shape=(3, 14, 10)))
    net.add(layers.BatchNormalization("norm1"))
    first = net.add(layers.Activation("relu1", "relu"))
    net.add(layers.Conv2D("conv2", 6, 3))
    second = net.add(layers.BatchNormalization("norm2"))
    net.add(layers.Merge("sum"), src=[first, second])
    net.add(layers.Activation("relu2", "relu6"))
    net.add(layers.MaxPooling2D("pool", 3, 2))
    net.add(layers.Concat("both", 1), src=[net.layers["pool"], net.add(layers.Conv2D("conv3", 4, 1), src="pool")])
    net.add(layers.Dropout("drop", dropout))
    return ended(net, optimizer.SGD(lr=lr, momentum=momentum), **options)


def values_of(net: FeedForwardNet) -> dict[str, Tensor]:
    return dict(zip(net.param_names(), net.param_values(), strict=True))


def losses(net: FeedForwardNet, steps: int = 4) -> list[float]:
    return [float(net.train_one_batch(X, Y)[0]) for _ in range(steps)]


def dtypes_of(net: FeedForwardNet, kernel: str) -> list[tuple[str, ...]]:
    """The dtypes of the operands of each call of a kernel, as planned."""
    instructions = net.training_graph._executable("recorded").placed.planned.instructions
    return [tuple(o.dtype.name for o in i.operands if o is not None) for i in instructions if i.kernel == kernel]


def smooth(kernels: str, **options: Any) -> FeedForwardNet:
    """A net without kinks, whose gradients by plain SGD of rate 1 are the step itself; equal weights each time."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=5)
    net.add(layers.Conv2D("conv1", 6, 3, input_sample_shape=(3, 14, 10)))
    first = net.add(layers.Activation("silu", "silu"))
    net.add(layers.Merge("sum"), src=[first, net.add(layers.Conv2D("conv2", 6, 3))])
    net.add(layers.Activation("softplus", "softplus"))
    net.add(layers.AvgPooling2D("pool", 3, 2))
    net.add(layers.Concat("both", 1), src=[net.layers["pool"], net.add(layers.Conv2D("conv3", 4, 1), src="pool")])
    return ended(net, optimizer.SGD(lr=1.0), **options)


def gradients_of_a_step(net: FeedForwardNet) -> dict[str, np.ndarray]:
    before = {name: tensor.to_numpy(value).copy() for name, value in values_of(net).items()}
    net.train_one_batch(X, Y)
    return {name: before[name] - tensor.to_numpy(value) for name, value in values_of(net).items()}


def off(narrow: np.ndarray, wide: np.ndarray) -> float:
    """How far a gradient lies off, as a share of the other's norm."""
    return float(np.linalg.norm(narrow - wide) / np.linalg.norm(wide))


@SETS
def test_gradients_are_within_one_percent_of_those_in_float32(kernels):
    """Where nothing has a kink, which a rounding may pass. A sum in 16 bits would be off by several percent."""
    wide, narrow = gradients_of_a_step(smooth(kernels)), gradients_of_a_step(smooth(kernels, precision="bfloat16"))
    shares = {name: off(narrow[name], gradient) for name, gradient in wide.items()}
    assert max(shares.values()) < 0.01, shares
    assert min(shares.values()) > 0, "nothing was rounded"


def normalized(kernels: str, mode: str, **options: Any) -> FeedForwardNet:
    """Normalisations, a branch and an average; the activation is the only kink, if it has one."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=5)
    net.add(layers.Conv2D("conv1", 6, 3, use_bias=False, input_sample_shape=(3, 14, 10)))
    net.add(layers.BatchNormalization("norm1"))
    first = net.add(layers.Activation("first", mode))
    net.add(layers.Conv2D("conv2", 6, 3, use_bias=False))
    net.add(layers.Merge("sum"), src=[first, net.add(layers.BatchNormalization("norm2"))])
    net.add(layers.Activation("second", mode))
    net.add(layers.AvgPooling2D("pool", 3, 2))
    return ended(net, optimizer.SGD(lr=1.0), **options)


@SETS
def test_behind_normalisations_gradients_are_within_two_percent_where_nothing_has_a_kink(kernels):
    """Layer by layer; float16 rounds 8 times as finely."""

    def shares(mode: str, precision: str) -> dict[str, float]:
        wide, narrow = (gradients_of_a_step(normalized(kernels, mode, **o)) for o in ({}, {"precision": precision}))
        return {name: off(narrow[name], gradient) for name, gradient in wide.items()}

    smooth, finer = shares("silu", "bfloat16"), shares("silu", "float16")
    assert max(smooth.values()) < 0.02, smooth
    assert max(finer.values()) < 0.0025, finer


@pytest.mark.peer
@SETS
def test_gradients_are_as_near_as_pytorch_s_autocast(kernels):
    """Of a net of normalisations and kinks, from equal weights: all layers together, none three times as far off."""
    torch = skips.library("torch")
    nn = torch.nn

    class Peer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.conv3, self.hidden, self.scores = nn.Conv2d(6, 4, 1), nn.Linear(350, 11), nn.Linear(11, 5)

        def forward(self, x: Any) -> Any:
            first = torch.relu(self.norm1(self.conv1(x)))
            pooled = nn.functional.max_pool2d(torch.clamp(first + self.norm2(self.conv2(first)), 0, 6), 3, 2, 1)
            both = torch.cat([pooled, self.conv3(pooled)], 1)
            return self.scores(torch.tanh(self.hidden(torch.flatten(both, 1))))

    def gradients(net: FeedForwardNet, autocast: bool) -> dict[str, np.ndarray]:
        peer, names = Peer(), {"gamma": "weight", "beta": "bias"}
        own = dict(peer.named_parameters())
        spelt = {
            name: ".".join([name.split("/")[0], names.get(name.split("/")[1], name.split("/")[1])])
            for name in values_of(net)
        }
        with torch.no_grad():
            for name, value in values_of(net).items():
                array = tensor.to_numpy(value)
                own[spelt[name]].copy_(torch.from_numpy(array.T.copy() if array.ndim == 2 else array.copy()))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scores = peer(torch.from_numpy(X))
        nn.functional.cross_entropy(scores.float(), torch.from_numpy(Y)).backward()
        found = {name: own[spelt[name]].grad.numpy() for name in spelt}
        return {name: array.T if array.ndim == 2 else array for name, array in found.items()}

    options = {"lr": 1.0, "momentum": 0.0, "dropout": 0.0}
    fresh = built(kernels, **options)
    theirs, rounded = gradients(fresh, autocast=False), gradients(fresh, autocast=True)
    wide = gradients_of_a_step(fresh)
    narrow = gradients_of_a_step(built(kernels, precision="bfloat16", **options))
    names = [name for name in wide if np.linalg.norm(wide[name]) > 1e-5]  # a bias before a normalisation has none
    assert all(off(wide[name], theirs[name]) < 1e-4 for name in names), "the two nets differ"
    ours, peers = ([off(a[name], b[name]) for name in names] for a, b in ((narrow, wide), (rounded, theirs)))
    assert np.linalg.norm(ours) < 1.5 * np.linalg.norm(peers), (names, ours, peers)
    assert all(mine < 3 * max(his, 0.01) for mine, his in zip(ours, peers, strict=True)), (names, ours, peers)


@SETS
def test_activations_are_narrow_and_the_rest_is_not(kernels):
    net = built(kernels, precision="bfloat16")
    losses(net, 1)
    assert dtypes_of(net, "conv2d_gradient") == [
        ("bfloat16", "bfloat16", "float32"),
        ("bfloat16", "bfloat16", "float32"),
        ("float32", "bfloat16", "float32"),
    ], "the first convolution reads the batch as it came"
    assert {call[-2:] for call in dtypes_of(net, "batch_norm_derivative")} <= {("float32", "float32")}
    assert dtypes_of(net, "softmax_cross_entropy")[0][0] == "float32"
    assert {name for call in dtypes_of(net, "sgd") for name in call} <= {"float32", "float64", "int64"}
    assert not any("bfloat16" in call for call in dtypes_of(net, "cast"))
    assert {value.dtype.name for value in net.param_values()} == {"float32"}
    assert net.predict(X).dtype == np.float32


def test_a_layer_may_keep_float32():
    net = built(precision="bfloat16", float32_layers=["conv2"])
    losses(net, 1)
    assert ("float32", "float32", "float32") in dtypes_of(net, "conv2d_gradient")
    assert ("bfloat16", "bfloat16", "float32") in dtypes_of(net, "conv2d_gradient")


@SETS
def test_the_plan_changes_no_bit(kernels, monkeypatch):
    planned = built(kernels, precision="bfloat16")
    wanted = losses(planned)
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    apart = built(kernels, precision="bfloat16")
    assert losses(apart) == wanted
    assert state_of(apart) == state_of(planned)


@SETS
def test_a_budget_changes_no_bit(kernels):
    free = built(kernels, precision="bfloat16")
    plan = free.plan_batch(len(X))
    with pytest.raises(BudgetError) as error:
        free.plan_batch(len(X), memory_budget=1)
    budget = (error.value.total_bytes + plan.total_bytes) // 2
    tight = built(kernels, precision="bfloat16", memory_budget=budget)
    assert losses(tight) == losses(free)
    assert state_of(tight) == state_of(free)


def test_stored_narrow_takes_less():
    """Of 41 samples, whose activations outweigh scratch; and of the plan before a step as of the one that runs."""
    x, y = np.concatenate([X] * 4)[:41], np.concatenate([Y] * 4)[:41]
    wide, narrow = built("numpy"), built("numpy", precision="bfloat16")
    told = narrow.plan_batch(41)
    narrow.train_one_batch(x, y)
    assert told.arena_bytes == narrow.memory_plan.arena_bytes < wide.plan_batch(41).arena_bytes
    assert told.gains["narrow"] > 0
    rows = {row.name: row.nbytes for row in told.rows if row.layer == "conv1"}
    assert 41 * 6 * 14 * 10 * 2 in rows.values()
    told.check()
    assert {row.variant for row in told.variants} == {"widened"}
    assert "conv2d: 3 widened" in told.summary()


@SETS
def test_snapshots_are_the_same_and_training_goes_on_to_the_bit(kernels, tmp_path):
    whole = built(kernels, precision="bfloat16")
    half = built(kernels, precision="bfloat16")
    whole.fit(X, Y, batch_size=5, epochs=2)
    half.fit(X, Y, batch_size=5, epochs=1, callbacks=[snapshots.Checkpoint(tmp_path / "run")])
    resumed = built(kernels, precision="bfloat16")
    resumed.fit(X, Y, batch_size=5, epochs=2, callbacks=[snapshots.Checkpoint(tmp_path / "run")], resume="auto")
    assert all_bits(values_of(resumed)) == all_bits(values_of(whole))
    whole.save(tmp_path / "net.h5")
    plain = built(kernels)
    plain.load(tmp_path / "net.h5")
    assert all_bits(values_of(plain)) == all_bits(values_of(whole))


@SETS
def test_a_snapshot_is_the_same_with_and_without(kernels, tmp_path):
    """Entries, dtypes and values: what is stored in 16 bits is none of a net's state."""
    held = []
    for precision in ("float32", "bfloat16"):
        net = built(kernels, precision=precision)
        net.save(tmp_path / f"{precision}.npz")
        losses(net, 1)
        net.save(tmp_path / f"{precision} trained.npz")
        held.append([dict(np.load(tmp_path / f"{precision}{end}.npz")) for end in ("", " trained")])
    (fresh, trained), (narrow_fresh, narrow_trained) = held
    assert {name: array.tobytes() for name, array in fresh.items() if array.dtype.kind == "f"} == {
        name: array.tobytes() for name, array in narrow_fresh.items() if array.dtype.kind == "f"
    }
    for arrays in (trained, narrow_trained):
        del arrays["manifest"]  # has checksums, which differ in length too
    assert [(name, a.dtype, a.shape) for name, a in trained.items()] == [
        (name, a.dtype, a.shape) for name, a in narrow_trained.items()
    ]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_kept(value):
    """Where the net computes nothing that makes another of them."""
    given = np.array([[1.0, value, -2.0]], np.float32)
    found = []
    for precision in ("float32", "bfloat16"):
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
        net.add(layers.Activation("first", input_sample_shape=(3,)))
        net.add(layers.Activation("second"))
        net.add(layers.Dense("sum", 1, weight_init=1.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net.compile(optimizer.SGD(lr=0.1), precision=precision)
            found.append(tensor.to_numpy(net.predict(given)).tolist())
    np.testing.assert_array_equal(*found)


def test_a_batch_with_nan_gives_a_loss_that_is_nan():
    net = built(precision="bfloat16")
    x = X.copy()
    x[0, 0, 0, 0] = np.nan
    with pytest.warns(RuntimeWarning, match="holds NaN"):
        assert np.isnan(float(net.train_one_batch(x, Y)[0]))


def test_of_layers_that_share_parameters_one_may_keep_float32():
    def siblings(**options: Any) -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=6)
        net.add(layers.Conv2D("stem", 4, 3, input_sample_shape=(3, 14, 10)))
        first = net.add(layers.Conv2D("first", 4, 3))
        net.add(layers.Activation("tanh1", "tanh"))
        net.add(layers.Conv2D("second", 4, 3).share_parameters(first))
        return ended(net, optimizer.SGD(lr=0.05), **options)

    net = siblings(precision="bfloat16", float32_layers=["second"])
    assert abs(losses(net, 3)[-1] / losses(siblings(), 3)[-1] - 1) < 0.02
    assert sorted(dtypes_of(net, "conv2d_derivative")) == [
        ("bfloat16", "float32", "bfloat16"),
        ("float32", "float32", "float32"),
    ], "the weight is the same"


REFUSED = [
    (
        {"precision": None},
        ValueError,
        "precision: wanted one of 'float32', 'bfloat16', 'float16', 'tf32', received None",
    ),
    ({"precision": "bfloat16", "graph": False}, ValueError, "precision='bfloat16': wanted graph=True"),
    ({"float32_layers": ["conv1"]}, ValueError, "float32_layers: wanted precision='bfloat16' beside it"),
    ({"precision": "bfloat16", "float32_layers": "conv1"}, TypeError, "float32_layers: wanted a list of names"),
    ({"precision": "bfloat16", "float32_layers": ["conv9"]}, ValueError, r"names of this net's layers, .*'conv9'"),
]


@pytest.mark.parametrize(("options", "kind", "message"), REFUSED)
def test_what_is_refused(options, kind, message):
    net = built()
    before = net.optimizer
    with pytest.raises(kind, match=message):
        net.compile(optimizer.SGD(lr=0.1), **options)
    assert net.optimizer is before
    losses(net, 1)


def test_nets_of_other_dtypes_are_refused():
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), dtype="float64")
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    with pytest.raises(ValueError, match="a net in float32, received layer 'dense' in float64"):
        net.compile(optimizer.SGD(lr=0.1), precision="bfloat16")


def test_it_is_said_where_the_processor_has_no_products_in_bfloat16(monkeypatch):
    net = built()
    with pytest.warns(PrecisionWarning, match="those of float32 serve, over converted copies"):
        net.compile(optimizer.SGD(lr=0.1), precision="bfloat16")
    monkeypatch.setattr(net.device.kernels, "has_bfloat16", True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.compile(optimizer.SGD(lr=0.1), precision="bfloat16")
