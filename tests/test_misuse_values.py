"""Misuses of optimizers, schedules, losses, metrics, initializers, callbacks and devices: every option is checked."""

from __future__ import annotations

import re
from inspect import signature
from typing import Any

import numpy as np
import pytest

import singa_lite
from misuse import Row, assert_all_refused, assert_options_are_checked, row
from singa_lite import (
    DeviceError,
    callbacks,
    data,
    device,
    initializer,
    layers,
    loss,
    metric,
    models,
    optimizer,
    regularizer,
    schedule,
    snapshots,
    tensor,
)
from singa_lite.common import words
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
    **{
        name: (getattr(optimizer, name), {})
        for name in ("SGD", "Nesterov", "RMSProp", "AdaGrad", "Adam", "AdamW", "Lion", "Muon", "Adafactor")
    },
    "register": (optimizer.SGD().register, {"pattern": "*"}),
    "Constant": (schedule.Constant, {"value": 1.0}),
    "Step": (schedule.Step, {"base": 1.0, "step_size": 3}),
    "Exponential": (schedule.Exponential, {"base": 1.0, "decay_steps": 3, "decay_rate": 0.5}),
    "CosineWithWarmup": (schedule.CosineWithWarmup, {"base": 1.0, "total_steps": 5}),
    **{f"loss {name}": (kind, {}) for name, kind in vars(loss).items() if name in LOSSES},
    **{f"metric {name}": (kind, {}) for name, kind in vars(metric).items() if name in METRICS},
    "loss.get": (loss.get, {"name": "huber"}),
    "metric.get": (metric.get, {"name": "accuracy"}),
    "clip_global_norm": (optimizer.clip_global_norm, {"gradients": [tensor.zeros((2,))], "limit": 1.0}),
    "EarlyStopping": (callbacks.EarlyStopping, {}),
    "ReduceLROnPlateau": (callbacks.ReduceLROnPlateau, {}),
    "CSVLogger": (callbacks.CSVLogger, {"path": "log.csv"}),
    "TensorBoard": (callbacks.TensorBoard, {"folder": "log"}),
    "TimeLimit": (callbacks.TimeLimit, {"seconds": 1.0}),
    "TopKAccuracy": (metric.TopKAccuracy, {}),
    "Precision": (metric.Precision, {"top_k": 1}),
    "Recall": (metric.Recall, {"top_k": 1}),
    **{
        name: (getattr(initializer, name), {})
        for name in ("Uniform", "Normal", "TruncatedNormal", "GlorotUniform", "HeNormal", "LecunNormal", "Orthogonal")
    },
    "initializer.Constant": (initializer.Constant, {"value": 1.0}),
    "L2Regularizer": (regularizer.L2Regularizer, {"coefficient": 1.0}),
    "ElementConstraint": (regularizer.ElementConstraint, {"threshold": 1.0}),
    "NormConstraint": (regularizer.NormConstraint, {"threshold": 1.0}),
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


class OwnOptimizer(optimizer.SGD):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)


class Forgetful(optimizer.SGD):
    def __init__(self) -> None:
        pass


class WithoutKernel(optimizer.Optimizer):
    pass


class OneArgument(loss.Loss):
    def compute(self, x: Any) -> Any:  # type: ignore[override]
        return x


ONES = tensor.ones((3,))
VALUES = [
    row(lambda: optimizer.SGD(dampening=0.5), ValueError, "dampening", "momentum"),
    row(lambda: optimizer.SGD(nesterov=True), ValueError, "nesterov", "momentum"),
    row(lambda: optimizer.SGD(momentum=0.9, dampening=0.1, nesterov=True), ValueError, "nesterov", "0.1"),
    row(lambda: optimizer.SGD(lr=float("nan")), ValueError, "SGD lr", "nan"),
    row(lambda: optimizer.SGD(lr=schedule.Step), TypeError, "SGD lr", "schedule.Step"),
    row(lambda: optimizer.SGD(lr=lambda: 0.1), TypeError, "SGD lr", "a function of the step"),
    row(lambda: setattr(optimizer.SGD(), "schedule", "fast"), TypeError, "SGD lr", "'fast'"),
    row(lambda: optimizer.SGD(regularizer=0.1), TypeError, "regularizer", "L2Regularizer(0.1)"),
    row(lambda: optimizer.SGD(constraint=5), TypeError, "constraint", "NormConstraint(5)"),
    row(lambda: optimizer.Adam(regularizer=regularizer.L2Regularizer), TypeError, "Adam regularizer", "L2Regularizer"),
    row(lambda: optimizer.SGD(constraint=regularizer.L2Regularizer(1)), TypeError, "SGD constraint", "Constraint"),
    row(lambda: register(regularizer=0.1), TypeError, "register '*' regularizer"),
    row(lambda: register(["*"]), TypeError, "register", "['*']"),
    row(lambda: optimizer.Adam(epsilon=float("inf")), ValueError, "Adam epsilon", "inf"),
    row(lambda: schedule.Step(0.1, "30"), TypeError, "Step step_size", "'30'"),
    row(lambda: schedule.Exponential(1, 2, 0.5, "no"), TypeError, "Exponential staircase", "'no'"),
    row(lambda: snapshots.Checkpoint("run", mode="max"), ValueError, "Checkpoint mode", "no monitor"),
    row(lambda: snapshots.Checkpoint("run", background="no"), TypeError, "Checkpoint background", "'no'"),
    row(lambda: optimizer.clip_global_norm([], 1), ValueError, "gradients"),
    row(lambda: optimizer.clip_global_norm([3.0], 1), TypeError, "tensors", "float"),
    row(lambda: optimizer.clip_global_norm(tensor.ones((3,)), 1), TypeError, "iterable", "Tensor"),
    row(lambda: optimizer.clip_global_norm([ONES, ONES], 1), ValueError, "twice"),
    row(lambda: optimizer.clip_global_norm([ONES], 0), ValueError, "limit", "0"),
    # devices, as texts or as something else
    row(lambda: FeedForwardNet(device="gpu"), DeviceError, "'cpu' or 'cuda:<number>'", "'gpu'"),
    row(lambda: tensor.from_numpy([1.0], "cuda:x"), DeviceError, "'cuda:x'"),
    row(lambda: tensor.zeros((2,)).to_device("cpu:0"), DeviceError, "'cpu:0'"),
    row(lambda: FeedForwardNet(device=0), TypeError, "device", "received 0"),
    row(lambda: device.cuda("0"), TypeError, "device.cuda index", "'0'"),
    row(lambda: device.new_cpu(limit="1GB"), TypeError, "limit", "'1GB'"),
    row(lambda: device.cpu(["numpy"]), DeviceError, "kernels", "['numpy']"),
    row(lambda: device.set_threads("2"), TypeError, "set_threads", "'2'"),
    # the user's classes
    row(lambda: FeedForwardNet("mse").compile(Forgetful()), TypeError, "Forgetful", "super().__init__(lr)"),
    row(lambda: WithoutKernel(0.1), TypeError, "WithoutKernel", "kernel_slots"),
    row(lambda: FeedForwardNet(OneArgument()), TypeError, "OneArgument", "compute(x, target)"),
    # nets of published forms
    row(lambda: models.resnet50(shpe=(3, 96, 96)), TypeError, "resnet50", "perhaps shape"),
    row(lambda: models.unet(shape=(1, 8, 8), widths=8), TypeError, "unet widths", "8"),
    # of a net
    row(lambda: FeedForwardNet(seed=-1), ValueError, "seed of the net", "received -1"),
    row(lambda: FeedForwardNet(seed=2**70), ValueError, "seed of the net", str(2**64 - 1)),
    row(lambda: FeedForwardNet(dtype=None), TypeError, "float dtype", "None"),
    row(lambda: FeedForwardNet(dtype="floaty"), TypeError, "float dtype", "floaty"),
    row(lambda: FeedForwardNet(loss.Huber), TypeError, "loss", "perhaps Huber()"),
    row(lambda: FeedForwardNet(metric.Accuracy(), loss.Huber()), TypeError, "loss", "Accuracy"),
]


#: Options that there are not, with what the message names: the class that is called, and no base of it.
NAMED: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: CALLS[name] for name in ("SGD", "Adam", "AdamW", "Step", "L2Regularizer", "EarlyStopping", "Checkpoint")},
    **{name: CALLS[f"loss {name}"] for name in LOSSES},
    **{name: CALLS[f"metric {name}"] for name in METRICS},
    "Precision": (metric.Precision, {"top_k": 1}),
    "GlorotNormal": (initializer.GlorotNormal, {}),
    "Dense": (layers.Dense, {"num_output": 3}),
    "TransformerBlock": (layers.TransformerBlock, {"heads": 2}),
    "FeedForwardNet": (FeedForwardNet, {}),
    "csv": (data.csv, {"path": "table.csv", "target": "y"}),
    "load_npz": (data.load_npz, {"path": "arrays.npz", "names": ["x"]}),
    "load": (singa_lite.load, {"path": "net.h5"}),
    "compile": (FeedForwardNet(seed=0).compile, {"optimizer": optimizer.SGD()}),
    "fit": (FeedForwardNet(seed=0).fit, {"x": [1.0]}),
}


def unknown(name: str, call: Any, given: dict[str, Any]) -> Row:
    return row(lambda: call(**given, patiense=3), TypeError, name, "patiense")


UNKNOWN = [
    *(unknown(name, call, given) for name, (call, given) in NAMED.items()),
    row(lambda: callbacks.EarlyStopping(patiense=3), TypeError, "perhaps patience"),
    row(lambda: optimizer.SGD(momentun=0.9), TypeError, "perhaps momentum"),
    *(
        row(lambda name=name: getattr(FeedForwardNet(seed=0), name)(bogus=1), TypeError, name, "bogus")
        for name in ("train_one_batch", "forward", "plan_batch", "backward", "add", "generate")
    ),
    # of a base's constructor, which a user's class calls
    row(lambda: OwnOptimizer(momentun=0.9), TypeError, "OwnOptimizer", "perhaps momentum"),
    row(lambda: OwnOptimizer(lr=0.1, learning_rate=0.1), TypeError, "OwnOptimizer", "received both"),
    # words of other frameworks
    row(lambda: optimizer.SGD(0.1, learning_rate=0.1), TypeError, "SGD", "lr", "learning_rate"),
    row(lambda: optimizer.SGD(0.1, decay=0.1), TypeError, "SGD", "weight_decay"),
    row(lambda: optimizer.SGD(0.1, clipnorm=1), TypeError, "clip_global_norm="),
    row(lambda: optimizer.Adam(betas=(0.9, 0.99)), TypeError, "Adam", "beta_1", "beta_2"),
    row(lambda: optimizer.Adam(nesterov=True), TypeError, "optimizer.Nesterov"),
    row(lambda: optimizer.RMSProp(alpha=0.9), TypeError, "RMSProp", "rho"),
    row(lambda: optimizer.RMSProp(momentum=0.9), TypeError, "optimizer.SGD(momentum=)"),
    row(lambda: loss.SoftmaxCrossEntropy(from_logits=2), TypeError, "from_logits"),
    row(lambda: loss.SquaredError(reduction="sum"), TypeError, "SquaredError", "reduction"),
    row(lambda: loss.SoftmaxCrossEntropy(weight=[1, 2]), TypeError, "fit(class_weight=)"),
    row(lambda: metric.TopKAccuracy(top_k=3), TypeError, "TopKAccuracy", "k", "top_k"),
    row(lambda: callbacks.EarlyStopping(restore_best=True, restore_best_weights=True), TypeError, "restore_best"),
    row(lambda: callbacks.Checkpoint(filepath="run"), TypeError, "Checkpoint", "folder", "filepath"),
    row(lambda: callbacks.Checkpoint("run", save_best_only=True), TypeError, "Checkpoint", "best.h5"),
    row(lambda: callbacks.CSVLogger("log.csv", filename="log.csv"), TypeError, "CSVLogger", "path", "filename"),
    row(lambda: callbacks.TensorBoard(log_dir=3), TypeError, "TensorBoard", "folder", "3"),
]


@pytest.mark.parametrize("rows", [VALUES, UNKNOWN], ids=["values", "unknown options"])
def test_misuse(rows):
    assert_all_refused(rows)


CALLS = (FeedForwardNet.compile, FeedForwardNet.fit, FeedForwardNet.evaluate, FeedForwardNet.predict)
MODULES = (layers, loss, metric, optimizer, callbacks, schedule)


def test_each_word_of_the_tables_stands_for_a_parameter():
    kinds = [kind for module in MODULES for kind in vars(module).values() if isinstance(kind, type)]
    taken = {name for call in (*CALLS, *(kind.__init__ for kind in kinds)) for name in signature(call).parameters}
    assert {name for names in words.ALIASES.values() for name in names} <= taken
    assert {hint for hints in words.HINTS.values() for hint in hints if hint.isidentifier()} <= taken
    defaults = {name for row in words.DEFAULTS.values() for names in row for name in names}
    assert defaults | {name for name, _ in words.DIFFERENT.values()} | words.SAME_WORDS.keys() <= taken


@pytest.mark.parametrize("module", MODULES)
def test_classes_of_other_frameworks(module):
    for name, (ours, given) in words.CLASSES.items():
        if ours in vars(module):
            found = getattr(module, name)
            assert found is vars(module)[ours] or found().given_arguments.items() >= given.items(), name
    for name, hint in words.CLASS_HINTS.items():
        with pytest.raises(AttributeError, match=rf"'{name}'.* {re.escape(hint)}$"):
            getattr(module, name)
    assert not hasattr(module, "Nonsense")


def test_each_class_of_the_tables_exists():
    known = {name for module in MODULES for name in vars(module)}
    assert {ours for ours, _ in words.CLASSES.values()} <= known
    hinted = {re.split(r"\W", hint)[0] for hint in words.CLASS_HINTS.values()}
    assert hinted - {"input_sample_shape", "the"} <= known


def test_numbers_of_numpy_and_arrays_without_axes_are_numbers():
    for lr in (np.float32(0.5), np.array(0.5), np.float16(0.5)):
        assert optimizer.SGD(lr, np.array(0.25), weight_decay=np.int8(0)).schedule(0) == 0.5
    assert metric.TopKAccuracy(np.int64(3)).k == 3
    assert schedule.Step(1.0, np.int64(2), 0.5)(2) == schedule.Step(1.0, np.array([2, 9]), 0.5)(2) == 0.5
    assert initializer.get(np.array(2)) == initializer.Constant(2.0)


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
