"""Misuses of optimizers, schedules, losses, metrics, initializers, callbacks and devices: every option is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import singa_lite
from misuse import assert_clear, assert_options_are_checked, assert_refused, row
from singa_lite import (
    DeviceError,
    callbacks,
    data,
    device,
    initializer,
    layers,
    loss,
    metric,
    optimizer,
    regularizer,
    schedule,
    snapshots,
    tensor,
)
from singa_lite.net import FeedForwardNet


def register(pattern: Any = "*", **options: Any) -> None:
    optimizer.SGD().register(pattern, **options)


LOSSES = (
    "CosineSimilarity",
    "Hinge",
    "Huber",
    "KLDivergence",
    "MeanAbsoluteError",
    "SigmoidCrossEntropy",
    "SoftmaxCrossEntropy",
)
METRICS = ("AUC", "Accuracy", "BinaryAccuracy", "BinaryPrecision", "ConfusionMatrix", "F1", "Perplexity", "R2")

CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (getattr(optimizer, name), {}) for name in ("SGD", "Nesterov", "RMSProp", "AdaGrad", "Adam", "AdamW")},
    "register": (optimizer.SGD().register, {"pattern": "*"}),
    "Constant": (schedule.Constant, {"value": 1}),
    "Step": (schedule.Step, {"base": 1, "step_size": 3}),
    "Exponential": (schedule.Exponential, {"base": 1, "decay_steps": 3, "decay_rate": 0.5}),
    "CosineWithWarmup": (schedule.CosineWithWarmup, {"base": 1, "total_steps": 5}),
    **{f"loss {name}": (kind, {}) for name, kind in vars(loss).items() if name in LOSSES},
    **{f"metric {name}": (kind, {}) for name, kind in vars(metric).items() if name in METRICS},
    "loss.get": (loss.get, {"name": "huber"}),
    "metric.get": (metric.get, {"name": "accuracy"}),
    "clip_global_norm": (optimizer.clip_global_norm, {"gradients": [tensor.zeros((2,))], "limit": 1}),
    "EarlyStopping": (callbacks.EarlyStopping, {}),
    "ReduceLROnPlateau": (callbacks.ReduceLROnPlateau, {}),
    "CSVLogger": (callbacks.CSVLogger, {"path": "log.csv"}),
    "TensorBoard": (callbacks.TensorBoard, {"folder": "log"}),
    "TimeLimit": (callbacks.TimeLimit, {"seconds": 1}),
    "TopKAccuracy": (metric.TopKAccuracy, {}),
    "Precision": (metric.Precision, {"top_k": 1}),
    "Recall": (metric.Recall, {"top_k": 1}),
    **{
        name: (getattr(initializer, name), {})
        for name in ("Uniform", "Normal", "TruncatedNormal", "GlorotUniform", "HeNormal", "LecunNormal", "Orthogonal")
    },
    "initializer.Constant": (initializer.Constant, {"value": 1}),
    "L2Regularizer": (regularizer.L2Regularizer, {"coefficient": 1}),
    "ElementConstraint": (regularizer.ElementConstraint, {"threshold": 1}),
    "NormConstraint": (regularizer.NormConstraint, {"threshold": 1}),
    "Checkpoint": (snapshots.Checkpoint, {"folder": "run"}),
    "cpu": (device.cpu, {}),
    "new_cpu": (device.new_cpu, {}),
    "abstract": (device.abstract, {}),
    "abstract cuda": (device.abstract, {"kernels": "cuda"}),
    "set_random_seed": (device.new_cpu().set_random_seed, {"seed": 1}),
    "FeedForwardNet": (FeedForwardNet, {}),
}


@pytest.mark.parametrize(("call", "given"), CALLS.values(), ids=CALLS)
def test_every_option_takes_or_refuses_whatever_is_given(call, given):
    assert_options_are_checked(call, given)


#: Calls, and what messages name them by: the class that is called, and no base of it.
NAMED: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (getattr(optimizer, name), {}) for name in ("SGD", "Nesterov", "RMSProp", "AdaGrad", "Adam", "AdamW")},
    **{name: (getattr(loss, name), {}) for name in LOSSES},
    **{name: (getattr(metric, name), {}) for name in METRICS},
    "Precision": (metric.Precision, {"top_k": 1}),
    "GlorotNormal": (initializer.GlorotNormal, {}),
    "Uniform": (initializer.Uniform, {}),
    "Step": (schedule.Step, {"base": 1, "step_size": 3}),
    "L2Regularizer": (regularizer.L2Regularizer, {"coefficient": 1}),
    "NormConstraint": (regularizer.NormConstraint, {"threshold": 1}),
    "EarlyStopping": (callbacks.EarlyStopping, {}),
    "Checkpoint": (snapshots.Checkpoint, {"folder": "run"}),
    "Dense": (layers.Dense, {"num_output": 3}),
    "TransformerBlock": (layers.TransformerBlock, {"heads": 2}),
    "FeedForwardNet": (FeedForwardNet, {}),
    "csv": (data.csv, {"path": "table.csv", "target": "y"}),
    "load_npz": (data.load_npz, {"path": "arrays.npz", "names": ["x"]}),
    "load": (singa_lite.load, {"path": "net.h5"}),
    "compile": (FeedForwardNet(seed=0).compile, {"optimizer": optimizer.SGD()}),
    "fit": (FeedForwardNet(seed=0).fit, {"x": [1.0]}),
}


@pytest.mark.parametrize("name", NAMED)
def test_an_unknown_option_is_told_with_those_that_there_are(name):
    call, given = NAMED[name]
    with pytest.raises(TypeError, match="patiense") as caught:
        call(**given, patiense=3)
    assert_clear(caught.value)
    assert name in str(caught.value) and "__init__" not in str(caught.value)


def test_an_option_that_is_misspelt_is_found():
    with pytest.raises(TypeError, match="perhaps patience"):
        callbacks.EarlyStopping(patiense=3)
    with pytest.raises(TypeError, match="perhaps momentum"):
        optimizer.SGD(momentun=0.9)


@pytest.mark.parametrize("name", ["train_one_batch", "forward", "plan_batch", "backward", "add", "generate"])
def test_python_s_own_errors_name_the_net_s_class(name):
    with pytest.raises(TypeError, match=f"FeedForwardNet.{name}"):
        getattr(FeedForwardNet(seed=0), name)(bogus=1)


def saved(path: Any) -> None:
    net = FeedForwardNet(seed=0)
    net.add(layers.Dense("dense", 2, input_sample_shape=(3,)))
    net.save(path)


READERS = {
    "load_idx": lambda path: data.load_idx(path),
    "labels": lambda path: data.load_idx(__file__, path),
    "load_cifar10": lambda path: data.load_cifar10(path),
    "second": lambda path: data.load_cifar10(["first.bin", path]),
    "load_npz": lambda path: data.load_npz(path, ["x"]),
    "load_hdf5": lambda path: data.load_hdf5(path, ["x"]),
    "csv": lambda path: data.csv(path, "y"),
    "parquet": lambda path: data.parquet(path, "y"),
    "image_folder": lambda path: data.image_folder(path, 8),
    "latest": lambda path: snapshots.latest(path),
    "load": lambda path: singa_lite.load(path),
    "net.load": lambda path: FeedForwardNet(seed=0).load(path),
    "net.save": lambda path: saved(path),
}


@pytest.mark.parametrize("name", READERS)
def test_a_path_that_is_none(name):
    """True, 1 and 2 are files that are open, which a reader would take and close."""
    for path in (True, 1, 2.5, {}, object()):
        with pytest.raises(TypeError, match="wanted a path, received") as caught:
            READERS[name](path)
        assert_clear(caught.value)


@pytest.mark.parametrize("dtype", [None, "floaty", "U3", object, 3, [1]])
@pytest.mark.parametrize("read", [data.csv, data.parquet])
def test_a_dtype_that_is_none(read, dtype):
    with pytest.raises(TypeError, match="dtype: wanted a dtype of numbers") as caught:
        read("table", "y", dtype=dtype)
    assert_clear(caught.value)


@pytest.mark.parametrize("names", [None, 3, [1], [b"x", 2], np.array("x")])
@pytest.mark.parametrize("read", [data.load_npz, data.load_hdf5])
def test_names_that_are_none(read, names):
    with pytest.raises(TypeError, match="names: wanted a list of names"):
        read("file", names)


ROWS = {
    "snapshots.load of no net": row(lambda: snapshots.load("net", "net.h5"), TypeError, "load net", "str"),  # type: ignore[arg-type]
    "snapshots.save of no net": row(lambda: snapshots.save(None, "net.h5"), TypeError, "save net", "None"),  # type: ignore[arg-type]
    "load(strict=) that is no flag": row(
        lambda: FeedForwardNet(seed=0).load("net.h5", strict="no"), TypeError, "strict", "'no'"
    ),
    "load(layers=) that is one text": row(
        lambda: FeedForwardNet(seed=0).load("net.h5", layers="dense"), TypeError, "layers", "'dense'"
    ),
    "load(custom=) that is a list": row(
        lambda: singa_lite.load("net.h5", custom=[int]), TypeError, "custom", "[<class"
    ),
    "SGD(dampening='a')": row(lambda: optimizer.SGD(momentum=0.9, dampening="a"), TypeError, "SGD dampening", "'a'"),
    "SGD(dampening=) without momentum": row(lambda: optimizer.SGD(dampening=0.5), ValueError, "dampening", "momentum"),
    "SGD(nesterov=) without momentum": row(lambda: optimizer.SGD(nesterov=True), ValueError, "nesterov", "momentum"),
    "SGD(nesterov=) with dampening": row(
        lambda: optimizer.SGD(momentum=0.9, dampening=0.1, nesterov=True), ValueError, "nesterov", "0.1"
    ),
    "SGD(nesterov='no')": row(lambda: optimizer.SGD(momentum=0.9, nesterov="no"), TypeError, "nesterov", "'no'"),
    "SGD(lr=True)": row(lambda: optimizer.SGD(lr=True), TypeError, "SGD lr", "True"),
    "SGD(lr='0.1')": row(lambda: optimizer.SGD(lr="0.1"), TypeError, "SGD lr", "'0.1'"),
    "SGD(lr=nan)": row(lambda: optimizer.SGD(lr=float("nan")), ValueError, "SGD lr", "nan"),
    "SGD(lr=a class)": row(lambda: optimizer.SGD(lr=schedule.Step), TypeError, "SGD lr", "schedule.Step"),
    "SGD(lr=a function of nothing)": row(
        lambda: optimizer.SGD(lr=lambda: 0.1), TypeError, "SGD lr", "a function of the step"
    ),
    "schedule that is a text": row(lambda: setattr(optimizer.SGD(), "schedule", "fast"), TypeError, "SGD lr", "'fast'"),
    "SGD(regularizer=.1)": row(lambda: optimizer.SGD(regularizer=0.1), TypeError, "regularizer", "L2Regularizer(0.1)"),
    "SGD(constraint=5)": row(lambda: optimizer.SGD(constraint=5), TypeError, "constraint", "NormConstraint(5)"),
    "Adam(regularizer=a class)": row(
        lambda: optimizer.Adam(regularizer=regularizer.L2Regularizer), TypeError, "Adam regularizer", "L2Regularizer"
    ),
    "regularizer for a constraint": row(
        lambda: optimizer.SGD(constraint=regularizer.L2Regularizer(1)), TypeError, "SGD constraint", "Constraint"
    ),
    "register(regularizer=.1)": row(lambda: register(regularizer=0.1), TypeError, "register '*' regularizer"),
    "register(['*'])": row(lambda: register(["*"]), TypeError, "register", "['*']"),
    "Adam(epsilon=inf)": row(lambda: optimizer.Adam(epsilon=float("inf")), ValueError, "Adam epsilon", "inf"),
    "Adam(beta_1=True)": row(lambda: optimizer.Adam(beta_1=True), TypeError, "Adam beta_1", "True"),
    "Step('30')": row(lambda: schedule.Step(0.1, "30"), TypeError, "Step step_size", "'30'"),
    "Step(True)": row(lambda: schedule.Step(0.1, True), TypeError, "Step step_size", "True"),
    "Exponential(staircase='no')": row(
        lambda: schedule.Exponential(1, 2, 0.5, "no"), TypeError, "Exponential staircase", "'no'"
    ),
    "TopKAccuracy('5')": row(lambda: metric.TopKAccuracy("5"), TypeError, "TopKAccuracy k", "'5'"),
    "TopKAccuracy(True)": row(lambda: metric.TopKAccuracy(True), TypeError, "TopKAccuracy k", "True"),
    "Checkpoint(mode=) without monitor": row(
        lambda: snapshots.Checkpoint("run", mode="max"), ValueError, "Checkpoint mode", "no monitor"
    ),
    "Checkpoint(background='no')": row(
        lambda: snapshots.Checkpoint("run", background="no"), TypeError, "Checkpoint background", "'no'"
    ),
    # devices, as texts or as something else
    "device='gpu'": row(lambda: FeedForwardNet(device="gpu"), DeviceError, "'cpu' or 'cuda:<number>'", "'gpu'"),
    "device='cuda:x'": row(lambda: tensor.from_numpy([1.0], "cuda:x"), DeviceError, "'cuda:x'"),
    "device='cpu:0'": row(lambda: tensor.zeros((2,)).to_device("cpu:0"), DeviceError, "'cpu:0'"),
    "device=0": row(lambda: FeedForwardNet(device=0), TypeError, "device", "received 0"),
    "cuda('0')": row(lambda: device.cuda("0"), TypeError, "device.cuda index", "'0'"),
    "new_cpu(limit='1GB')": row(lambda: device.new_cpu(limit="1GB"), TypeError, "limit", "'1GB'"),
    "new_cpu(limit=True)": row(lambda: device.new_cpu(limit=True), TypeError, "limit", "True"),
    "kernels=['numpy']": row(lambda: device.cpu(["numpy"]), DeviceError, "kernels", "['numpy']"),
    "set_threads('2')": row(lambda: device.set_threads("2"), TypeError, "set_threads", "'2'"),
    # of a net
    "seed=-1": row(lambda: FeedForwardNet(seed=-1), ValueError, "seed of the net", "received -1"),
    "seed=2**70": row(lambda: FeedForwardNet(seed=2**70), ValueError, "seed of the net", str(2**64 - 1)),
    "seed=1.5": row(lambda: FeedForwardNet(seed=1.5), ValueError, "seed of the net", "1.5"),
    "seed=True": row(lambda: FeedForwardNet(seed=True), TypeError, "seed of the net", "True"),
    "seed='a'": row(lambda: FeedForwardNet(seed="a"), TypeError, "seed of the net", "'a'"),
    "dtype=None": row(lambda: FeedForwardNet(dtype=None), TypeError, "float dtype", "None"),
    "dtype='float'": row(lambda: FeedForwardNet(dtype="floaty"), TypeError, "float dtype", "floaty"),
    "dtype='complex64'": row(lambda: FeedForwardNet(dtype="complex64"), TypeError, "float dtype", "complex64"),
    "a loss that is a class": row(lambda: FeedForwardNet(loss.Huber), TypeError, "loss", "perhaps Huber()"),
    "loss and metric exchanged": row(
        lambda: FeedForwardNet(metric.Accuracy(), loss.Huber()), TypeError, "loss", "Accuracy"
    ),
    "unknown src": row(
        lambda: FeedForwardNet().add(layers.Dense("d", 2, input_sample_shape=(3,)), src=5), TypeError, "src", "5"
    ),
}


@pytest.mark.parametrize("one", ROWS.values(), ids=ROWS)
def test_misuse(one):
    assert_refused(one)


def test_numbers_of_numpy_and_arrays_without_axes_are_numbers():
    for lr in (np.float32(0.5), np.array(0.5), np.float16(0.5)):
        assert optimizer.SGD(lr, np.array(0.25), weight_decay=np.int8(0)).schedule(0) == 0.5
    assert metric.TopKAccuracy(np.int64(3)).k == 3
    assert schedule.Step(1.0, np.int64(2), 0.5)(2) == schedule.Step(1.0, np.array([2, 9]), 0.5)(2) == 0.5
    assert initializer.get(np.array(2)) == initializer.Constant(2.0)


def test_a_schedule_is_exchanged_for_a_number():
    opt = optimizer.SGD(0.1)
    opt.schedule = 0.25
    assert opt.schedule(7) == 0.25


def test_devices_by_name():
    """As SINGA_LITE_DEVICE spells them, wherever a device is taken."""
    cpu = device.cpu()
    assert device.get("cpu") is cpu and device.get(cpu) is cpu and device.get() is device.default()
    net = FeedForwardNet(device="cpu")
    net.add(layers.Dense("dense", 2, input_sample_shape=(3,)))
    net.to_device("cpu")
    assert net.device is cpu and net.param_values()[0].device is cpu
    apart = tensor.from_numpy([1.0], device.new_cpu())
    assert apart.to_device("cpu").device is cpu
    for made in (
        tensor.from_numpy([1.0], "cpu"),
        tensor.zeros((2,), device="cpu"),
        tensor.as_tensor([1.0], "cpu"),
        tensor.from_dlpack(np.ones(3), "cpu"),
    ):
        assert made.device is cpu
