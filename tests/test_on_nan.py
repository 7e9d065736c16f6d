"""A loss that is not finite: what is said of it, what of the net is left, and that nothing of it is kept."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, callbacks, device, layers, loss, metric, optimizer
from singa_lite.errors import GraphError, NonFiniteError, SnapshotError
from singa_lite.snapshots.checkpoints.background import Writer
from singa_lite.training.non_finite import LossLook

X = np.random.default_rng(4).normal(size=(8, 2, 6, 5)).astype("f")
Y = np.arange(8) % 3
MODES = (
    {},
    {"graph": False},
    {"memory_budget": "1 MiB"},
    {"precision": "bfloat16"},
    {"micro_batches": 3},
    {"clip_global_norm": 1.0},
    {"accumulate": 2},
    {"accumulate": 2, "graph": False},
    {"accumulate": 2, "memory_budget": "1 MiB"},
    {"accumulate": 2, "micro_batches": 3},
    {"accumulate": 2, "order": "dependencies"},
    {"accumulate": 2, "parameter_dtype": "bfloat16"},
    {"freeze": "dense"},
)


def made(on: object = None, **options: object) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1, device=on)
    net.add(layers.Conv2D(4, 3, input_sample_shape=(2, 6, 5)))
    if "micro_batches" not in options:
        net.add(layers.BatchNormalization())
    net.add(layers.Dropout(0.3))
    net.add(layers.Flatten())
    net.add(layers.Sequential([layers.Activation(mode="relu"), layers.Dense(7)], name="block"))
    net.add(layers.Dense(3))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), **{"on_nan": "raise"} | options)
    return net


def fill(net: FeedForwardNet, name: str, value: float) -> None:
    given = net.parameters()[name]
    given.copy_from_numpy(np.full(given.shape, value, "f"))


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in net.parameters().items()}


def assert_same(net: FeedForwardNet, before: dict[str, np.ndarray]) -> None:
    for name, value in net.parameters().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("steps", [0, 1])
def test_the_first_layer_is_named_and_parameters_stay(options, steps):
    net = made(**options)
    for _ in range(steps):
        net.train_one_batch(X, Y)
    fill(net, "block/dense/weight", 3e38)  # finite, but not what comes of it
    before = values(net)
    with pytest.raises(NonFiniteError, match="'block/dense'"):
        net.train_one_batch(X, Y)
    assert_same(net, before)
    with pytest.raises(GraphError, match="discard_step"):
        net.train_one_batch(X, Y)
    net.discard_step()
    for slots in net.optimizer.state.values():
        assert np.isfinite(slots["velocity"]).all()


def test_a_parameter_that_an_earlier_step_broke_is_named():
    net = made()
    fill(net, "dense/weight", np.inf)
    with pytest.raises(NonFiniteError, match="'dense/weight'"):
        net.train_one_batch(X, Y)


def test_an_input_a_target_and_the_loss_are_told_from_layers():
    x = X.copy()
    x[3, 1, 2, 4] = np.inf
    with (
        pytest.warns(RuntimeWarning, match="input"),
        pytest.raises(NonFiniteError, match=r"'conv2d'.*\[3, 1, 2, 4\]"),
    ):
        made().train_one_batch(x, Y)
    net = FeedForwardNet(loss.SquaredError())
    net.add(layers.Dense(2, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1), on_nan="raise")
    with pytest.raises(NonFiniteError, match="received inf"):
        net.train_one_batch(np.full((4, 3), 1e18, "f"), np.full((4, 2), -3e30, "f"))
    net.discard_step()
    y = np.zeros((4, 2), "f")
    y[2, 1] = np.nan
    with pytest.raises(NonFiniteError, match=r"target of layer 'dense'.*\[2, 1\]"):
        net.train_one_batch(np.ones((4, 3), "f"), y)


@pytest.mark.parametrize("graph", [True, False])
def test_fit_raises_by_itself_and_a_batch_by_hand_only_where_it_is_asked_for(graph):
    net = made(on_nan="fit", graph=graph)
    fill(net, "dense/weight", np.nan)
    with pytest.raises(NonFiniteError, match="dense"):
        net.fit(X, Y, batch_size=4, verbose=False)
    net.discard_step()
    assert np.isnan(float(net.train_one_batch(X, Y)[0]))
    net.compile(optimizer.SGD(0.1), on_nan=None, graph=graph)
    assert np.isnan(net.fit(X, Y, batch_size=4, verbose=False)["loss"]).all()


@pytest.mark.parametrize("graph", [True, False])
def test_a_warning_is_given_once_for_several_and_changes_no_bit(graph, recwarn):
    nets = made(on_nan="warn", graph=graph), made(on_nan=None, graph=graph)
    for net in nets:
        fill(net, "dense/bias", np.inf)
        for _ in range(3):
            net.train_one_batch(X, Y)
    told = [str(each.message) for each in recwarn if each.category is UserWarning]
    assert len(told) == 1 and "'dense'" in told[0]
    for wanted, found in ((nets[1].parameters(), nets[0].parameters()), (nets[1].states(), nets[0].states())):
        for name, value in wanted.items():
            np.testing.assert_array_equal(value, found[name])


@pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
def test_steps_that_loss_scaling_skips_are_none_until_they_are_many():
    net = made(precision="float16", on_nan="raise")
    fill(net, "dense/weight", np.inf)
    for _ in range(3):
        net.train_one_batch(X, Y)
    with pytest.raises(NonFiniteError, match="'dense/weight'"):
        net.train_one_batch(X, Y)


def test_a_callback_that_looks_itself_is_left_alone(tmp_path):
    net = made(on_nan="fit")
    fill(net, "dense/weight", np.nan)
    with pytest.warns(UserWarning, match="fit was ended"):
        net.fit(X, Y, batch_size=4, verbose=False, callbacks=[callbacks.TerminateOnNaN()])


@pytest.mark.filterwarnings("ignore:a checkpoint was not written:UserWarning")
@pytest.mark.parametrize(("background", "first"), [(False, False), (True, False), (True, True)])
def test_no_checkpoint_is_written_of_it(tmp_path, monkeypatch, background, first):
    """first: the thread is done before the step, whose update then takes the fault to other parameters."""
    begin = Writer.start

    def begin_and_wait(writer, work):
        begin(writer, work)
        writer.settle()

    if first:
        monkeypatch.setattr(Writer, "start", begin_and_wait)

    class Break(callbacks.Callback):
        def on_batch(self, training):
            if training.progress.batch == 3:
                fill(training.net, "dense/weight", np.nan)

    net, kept = made(on_nan="fit"), callbacks.Checkpoint(tmp_path, every_steps=1, keep=9, background=background)
    with pytest.raises((NonFiniteError, SnapshotError), match=r"(conv2d|dense)/weight"):
        net.fit(X, Y, batch_size=2, epochs=2, verbose=False, callbacks=[Break(), kept])
    assert list(tmp_path.glob("*.h5"))
    other = made()
    for path in tmp_path.glob("*.h5"):
        other.load(path)
        assert all(np.isfinite(value).all() for value in values(other).values())


def test_without_memory_to_look_the_rest_is_said():
    host = device.new_cpu()
    net, x, y = made(on=host), np.tile(X, (100, 1, 1, 1)), np.tile(Y, 100)
    net.train_one_batch(x, y)
    fill(net, "dense/bias", np.nan)
    host.pool.release_free()
    host.pool.set_limit(host.pool.total)
    with pytest.raises(NonFiniteError, match="'dense/bias'"):
        net.train_one_batch(x, y)


def test_a_batch_goes_when_its_step_is_done():
    """No cycle keeps it until Python's collector runs, which for large batches is hundreds of megabytes."""
    net = FeedForwardNet("squared_error", seed=1)
    net.add(layers.Dense(2, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            net.train_one_batch(np.ones((4, 3), "f"), np.ones((4, 2), "f"))
        left = [found for found in gc.get_objects() if type(found) is LossLook]  # isinstance asks lazy modules to load
    finally:
        gc.enable()
    assert not left


DIVERGING = {
    "softmax, eager": (loss.SoftmaxCrossEntropy, {"graph": False}),
    "softmax, clipped": (loss.SoftmaxCrossEntropy, {"clip_global_norm": 1e38}),
    "sigmoid, state in 8 bits": (loss.SigmoidCrossEntropy, {"state_dtype": "int8"}),
    "squares, accumulated": (loss.MeanSquaredError, {"accumulate": 2}),
    "squares, by pieces": (loss.SquaredError, {"micro_batches": 2}),
    "cosine, in few bytes": (loss.CosineSimilarity, {"memory_budget": "4 MiB"}),
    "huber": (loss.Huber, {}),
    "divergence": (loss.KLDivergence, {}),
}


@pytest.mark.parametrize("kernels", [one.name for one in kernel_sets()])
@pytest.mark.parametrize("name", DIVERGING)
def test_a_diverging_run_says_that_the_loss_is_not_finite_and_nothing_else(name, kernels):
    """Where NumPy is to raise: neither its errors nor its warnings, which are errors here, leave a kernel."""
    criterion, options = DIVERGING[name]
    x, y = np.random.default_rng(0).normal(size=(24, 6, 8)).astype("f"), np.eye(3, dtype="f")[np.arange(24) % 3]
    for layer in (layers.LSTM("l", 70), layers.TransformerBlock("l", 2), layers.GRU("l", 4)):
        net = FeedForwardNet(criterion(), metric.R2(), device=device.new_cpu(kernels=kernels), seed=1)
        net.add(layers.Dummy("x", input_sample_shape=(6, 8)))
        net.add(layer)
        net.add(layers.Flatten())
        net.add(layers.L2Norm())
        net.add(layers.Activation(mode="gelu"))
        net.add(layers.Dense(3))
        net.compile(optimizer.Adam(1e38), **options)
        with np.errstate(all="raise"), pytest.raises(NonFiniteError, match="loss of step"):
            net.fit(x, y, batch_size=12, epochs=3, verbose=False, validation_data=(x, y))
        net.discard_step()
        with np.errstate(all="raise"):
            net.evaluate(x, y)
            net.predict(x)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_in_the_first_target_is_a_warning_once(value):
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu())
    net.add(layers.Dense("a", 3, input_sample_shape=(5,)))
    net.compile(optimizer.SGD(lr=0.1))
    x, y = np.zeros((4, 5), "f"), np.zeros((4, 3), "f")
    y[2, 1] = value
    with np.errstate(invalid="ignore"):
        with pytest.warns(RuntimeWarning, match="target of layer 'a'") as caught:
            net.train_one_batch(x, y)
        net.train_one_batch(x, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_numbers_beyond_the_dtype_are_told_as_what_they_become():
    """Of float64 data, targets and weights of samples."""
    x, y, large = np.ones((6, 3)), np.ones((6, 2)), 1e300
    for given, wanted in (((large * x, y), "'dense'"), ((x, large * y), "target of layer 'dense'")):
        net = FeedForwardNet(loss.SquaredError())
        net.add(layers.Dense(2, input_sample_shape=(3,)))
        net.compile(optimizer.SGD(0.1))
        with np.errstate(all="raise"), pytest.raises((NonFiniteError, RuntimeWarning), match=wanted):
            net.fit(*given, batch_size=3, verbose=False)
