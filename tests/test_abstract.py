"""Abstract devices: plans without a byte, equal to those of real devices; what wants values is refused; made real."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import in_process
import own_steps
from cuda_devices import new_device
from every_row import over_rows
from kernel_sets import kernel_sets
from layer_cases import CASES, Case
from misuse import assert_clear, assert_refused, row
from nets import all_bits, bits
from singa_lite import FeedForwardNet, Layer, autograd, device, initializer, layers, loss, metric, optimizer, tensor
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.device import Device
from singa_lite.errors import AbstractDeviceError, DeviceError, ShapeError
from singa_lite.layer.layer import Context
from singa_lite.runtime.pool_numbers import OutOfMemoryError

SETS = [kernels.name for kernels in kernel_sets()]
each_set = pytest.mark.parametrize("kernels", SETS)
RNG = np.random.default_rng(7)


def images(on: Device, **options: Any) -> FeedForwardNet:
    """Convolutions, a branch, statistics and random numbers."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), on, seed=3, **options)
    net.add(layers.Conv2D("conv1", 6, 3, input_sample_shape=(3, 9, 11)))
    net.add(layers.BatchNormalization("norm"))
    relu = net.add(layers.Activation("relu"))
    net.add(layers.Conv2D("conv2", 6, 3, use_bias=False, weight_init="orthogonal"))
    net.add(layers.Merge("sum"), ["conv2", relu])
    net.add(layers.MaxPooling2D("pool", 3, 2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.Dense("scores", 5))
    return net


def text(on: Device) -> FeedForwardNet:
    """Layers of layers, a state in tables, and a parameter that two layers share."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), None, on, seed=5)
    ids = net.add(layers.Embedding("ids", 37, 12, input_sample_shape=(7,)))
    net.add(layers.SinusoidalPositions("positions"))
    net.add(layers.TransformerBlock("block", 3, causal=True))
    net.add(layers.TiedDense("head", ids))
    return net


def recurrent(on: Device) -> FeedForwardNet:
    """Recurrent layers, and a net that is a layer of another."""
    inner = FeedForwardNet(device=on, seed=8)
    inner.add(layers.Dense("inner", 6, input_sample_shape=(5,)))
    inner.add(layers.Activation("tanh", "tanh"))
    net = FeedForwardNet(loss.SquaredError(), None, on, seed=9)
    net.add(layers.LSTM("lstm", 5, dropout=0.3, num_stacks=2, input_sample_shape=(4, 3)))
    net.add(layers.Net("net", inner))
    out = net.add(layers.Dense("out", 6))
    out.trainable = False
    net.add(layers.Dense("again", 6).share_parameters(out))
    return net


NETS: dict[str, Callable[[Device], FeedForwardNet]] = {"images": images, "text": text, "recurrent": recurrent}


#: {name: (optimizer, options of compile)}.
COMPILED: dict[str, tuple[Callable[[], optimizer.Optimizer], dict[str, Any]]] = {
    "SGD": (optimizer.SGD, {}),
    "momentum": (lambda: optimizer.SGD(momentum=0.9), {}),
    "RMSProp": (optimizer.RMSProp, {}),
    "clip": (optimizer.Adam, {"clip_global_norm": 1.0}),
    "accumulate": (optimizer.Adam, {"accumulate": 3}),
    "int8": (optimizer.Adam, {"state_dtype": "int8"}),
    "float16": (optimizer.Adam, {"precision": "float16", "loss_scale": 128.0}),
    "not fused": (optimizer.Adam, {"fuse": False}),
    "a frozen layer": (optimizer.Nesterov, {"freeze": ["conv1"]}),
    "pieces": (optimizer.AdaGrad, {"micro_batches": 2, "freeze": ["norm"]}),
}


def facts(plan: MemoryPlan) -> tuple[Any, ...]:
    """All that a plan says, to the byte."""
    numbers = plan.total_bytes, plan.arena_bytes, plan.floor_bytes, plan.eager_bytes, plan.unshared_bytes
    return *numbers, plan.by_role, plan.held_blocks, plan.rows, plan.beside, plan.overhead_bytes, plan.summary()


def both(make: Callable[[Device], FeedForwardNet], kernels: str) -> list[FeedForwardNet]:
    """The net on an abstract device, and on a real one."""
    return [make(device.abstract(kernels)), make(device.new_cpu(kernels=kernels))]


def plans(nets: list[FeedForwardNet], size: int = 5, **options: Any) -> list[tuple[Any, ...]]:
    return [facts(net.plan_batch(size, **options)) for net in nets]


def within(net: FeedForwardNet, budget: int) -> tuple[Any, ...] | str:
    """A plan within a budget, or what the error says."""
    try:
        return facts(net.plan_batch(5, memory_budget=budget))
    except PlanError as error:
        return str(error)


# --- equal to the byte ---------------------------------------------------------------------------------------


@each_set
@pytest.mark.parametrize("name", NETS)
def test_plans_are_those_of_the_real_net(name, kernels):
    abstract, real = nets = both(NETS[name], kernels)
    for net in nets:
        net.compile(optimizer.AdamW())
    first, second = plans(nets)
    assert first == second
    assert first[0] > 0
    assert [facts(net.plan_batch(4, training=False)) for net in nets] == [facts(real.plan_batch(4, training=False))] * 2
    for share in (17, 19) if name == "images" else (19,):
        budget = abstract.plan_batch(5).total_bytes * share // 20
        told = within(abstract, budget)
        assert told == within(real, budget)
        assert isinstance(told, str) or told[0] <= budget
    if name == "images":
        assert abstract.largest_batch("1 MiB") == real.largest_batch("1 MiB") > 0
    assert abstract.summary() == real.summary()
    assert abstract.device.pool.high_water <= real.device.pool.high_water


@each_set
@pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
@pytest.mark.parametrize("name", COMPILED)
def test_plans_with_each_optimizer_and_option(name, kernels):
    kind, options = COMPILED[name]
    nets = both(images, kernels)
    for net in nets:
        net.compile(kind(), **options)
    first, second = plans(nets)
    assert first == second
    assert nets[0].optimizer.state == {}


@each_set
def test_the_curve_and_the_generation_plan(kernels):
    curves = []
    for net in both(images, kernels):
        net.compile(optimizer.SGD(momentum=0.9))
        curves.append(net.budget_curve(40))
    assert curves[0] == curves[1]
    assert len(curves[0]) > 1
    first, second = (facts(net.plan_generation(2, 6)) for net in both(text, kernels))
    assert first == second


@each_set
def test_a_plan_within_the_memory_that_there_will_be(kernels):
    """As under a device's limit: values are made again, and where that is not enough, the message says how much is."""
    net = images(device.abstract(kernels))
    net.compile(optimizer.SGD(momentum=0.9))
    limit = net.budget_curve(50)[1][0]
    found = []
    for on in (device.abstract(kernels, memory=limit), device.new_cpu(limit, kernels)):
        net = images(on)
        net.compile(optimizer.SGD(momentum=0.9))
        plan = net.plan_batch(50)
        found.append(facts(plan))
        assert plan.recomputed
        assert on.pool.limit == limit
    assert found[0] == found[1]
    small = images(device.abstract(kernels, memory="3 KiB"))  # less than the parameters alone
    small.compile(optimizer.SGD(momentum=0.9))
    with pytest.raises(OutOfMemoryError, match=f"{kernels}.*3072"):
        small.plan_batch(1)


@each_set
def test_a_recorded_expression_is_planned(kernels):
    def graph(on: Device) -> Any:
        weights = tensor.from_numpy(RNG.standard_normal((6, 4)).astype("f"), on)
        weights.stores_grad = True
        x, target = tensor.zeros((3, 6), device=on), tensor.zeros((3,), np.int64, on)
        with on.recording() as made:
            out = autograd.softmax_cross_entropy(autograd.matmul(x, weights), target)
            for parameter, gradient in autograd.backward(out):
                optimizer.SGD(momentum=0.9).update(None, parameter, gradient)
        return made.memory_plan, made

    abstract, recorded = graph(device.abstract(kernels))
    real, _ = graph(device.new_cpu(kernels=kernels))
    assert facts(abstract) == facts(real)
    with pytest.raises(AbstractDeviceError, match="recorded step"):
        recorded.run()


# --- made real -----------------------------------------------------------------------------------------------


#: What is compiled before nets are made real: rates, norms and scales begin there too.
BEGUN: dict[str, tuple[Callable[[Device], FeedForwardNet], dict[str, Any]]] = {
    "images": (images, {"loss_scale": "dynamic", "clip_global_norm": 1.0}),
    "text": (text, {"clip_global_norm": 2.0}),
    "recurrent": (recurrent, {}),
}


@each_set
@pytest.mark.parametrize("name", BEGUN)
def test_a_net_that_was_made_real_is_the_net_made_there(name, kernels):
    """Also where the optimizer's schedule, the norm and the scale are planned before they have bytes."""
    make, options = BEGUN[name]
    abstract, real = nets = both(make, kernels)
    for net in nets:
        net.compile(optimizer.AdamW(lambda step: 0.01 / (1 + step)), **options)
    abstract.plan_batch(5)
    abstract.to_device(real.device)
    assert abstract.device is real.device
    assert all_bits(abstract.parameters()) == all_bits(real.parameters())
    assert all_bits(abstract.states()) == all_bits(real.states())
    assert [p.stores_grad for p in abstract.param_values()] == [p.stores_grad for p in real.param_values()]
    for x, y in (_batch(real, 5), _batch(real, 5)):
        first, second = (net.train_one_batch(x, y)[0] for net in nets)
        assert bits(first) == bits(second)
    assert all_bits(abstract.parameters()) == all_bits(real.parameters())
    assert facts(abstract.memory_plan) == facts(real.memory_plan)
    if "loss_scale" in options:
        assert float(abstract.loss_scale) == float(real.loss_scale)
        assert float(abstract.gradient_norm) == float(real.gradient_norm) > 0


def _batch(net: FeedForwardNet, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Of random numbers, or ids."""
    (name, shape), *_ = net.input_shapes().items()
    count = net.input_ids().get(name)
    given = RNG.integers(0, count, (size, *shape)) if count else RNG.standard_normal((size, *shape)).astype("f")
    (out,) = net.output_names()
    (wanted,) = net.output_shapes(out)
    if isinstance(net.loss, loss.SquaredError):
        return given, RNG.standard_normal((size, *wanted)).astype("f")
    return given, RNG.integers(0, wanted[-1], (size, *wanted[:-1]))


def test_every_layer_is_made_real():
    """All of the layers' contract table: set up where nothing has bytes, then as if added to a net on the CPU."""
    over_rows(made_real, ((name, (case,)) for name, case in CASES.items() if case.placed is None))


def made_real(case: Case) -> None:
    context, real = Context(device.abstract("numpy"), np.dtype("f"), 11), device.new_cpu(kernels="numpy")
    moved, made = case.make(), case.make()
    moved.prepare(case.shapes, context)
    for table in (moved.parameters, moved.states):
        for value in table.values():
            assert value.device is context.device
    moved.to_device(real)
    made.prepare(case.shapes, context._replace(device=real))
    assert all_bits(moved.parameters) == all_bits(made.parameters)
    assert all_bits(moved.states) == all_bits(made.states)
    assert moved.output_sample_shape == made.output_sample_shape


def test_nets_that_share_layers_are_made_real_together_and_what_was_marked_stays_marked():
    net = images(device.abstract("numpy"))
    net.layers["scores"].parameters["bias"].stores_grad = False
    net.layers["conv2"].trainable = False
    part = net.submodel("pool")
    part.to_device(device.new_cpu(kernels="numpy"))
    assert net.device is part.device
    assert net.parameters()["conv1/weight"] is part.parameters()["conv1/weight"]
    assert all_bits(net.parameters()) == all_bits(images(device.new_cpu(kernels="numpy")).parameters())
    assert {p.name for p in net.param_values() if not p.stores_grad} == {"scores/bias", "conv2/weight"}


def test_from_one_abstract_device_to_another():
    """To compare kernel sets: plans are those of a net that was made there."""
    net, there = images(device.abstract("numpy")), device.abstract("cuda")
    net.to_device(there)
    made = images(device.abstract("cuda"))
    for each in (net, made):
        each.compile(optimizer.SGD())
    assert facts(net.plan_batch(3)) == facts(made.plan_batch(3))


def test_where_real_memory_is_too_small_the_net_stays_as_it_is():
    net, there = images(device.abstract("numpy")), device.new_cpu(3000, "numpy")
    net.compile(optimizer.Adam())
    before = facts(net.plan_batch(3))
    with pytest.raises(OutOfMemoryError):
        net.to_device(there)
    assert there.pool.used == 0
    assert net.device.is_abstract
    assert facts(net.plan_batch(3)) == before
    net.to_device(device.new_cpu(kernels="numpy"))
    assert all_bits(net.parameters()) == all_bits(images(device.new_cpu(kernels="numpy")).parameters())


def test_steps_of_ones_own_are_planned_and_begin_there():
    """Two nets that one step trains, which draws random numbers."""
    first, second = (own_steps.gan(on) for on in (device.abstract("numpy"), device.new_cpu(kernels="numpy")))
    targets = np.zeros(9, np.float32)
    assert facts(first[0].plan_batch(9)) == facts(second[0].plan_batch(9))
    with pytest.raises(AbstractDeviceError, match="train_one_batch"):
        first[0].train_one_batch(own_steps.X[:9], targets)
    for net in first:
        net.to_device(second[0].device)
    for critic, _ in (first, second):
        critic.train_one_batch(own_steps.X[:9], targets)
    for net, other in zip(first, second, strict=True):
        assert all_bits(net.parameters()) == all_bits(other.parameters())
    assert bits(first[0].trainer.step_state()["step_random"]) == bits(second[0].trainer.step_state()["step_random"])


def test_what_a_layer_was_told_beside_its_options_is_told_there():
    """Normalization takes its numbers from data, which is no value of a tensor yet."""
    data = RNG.standard_normal((20, 3, 4, 5)).astype("f") * 3 + 1
    nets = [FeedForwardNet(device=on, seed=1) for on in (device.abstract("numpy"), device.new_cpu(kernels="numpy"))]
    for net in nets:
        net.add(layers.Normalization("norm", input_sample_shape=(3, 4, 5))).adapt(data)
    nets[0].to_device(nets[1].device)
    assert all_bits(nets[0].states()) == all_bits(nets[1].states())
    assert bits(nets[0].predict(data)) == bits(nets[1].predict(data))


def test_an_optimizer_that_planned_serves_a_real_net():
    shared = optimizer.Adam(lambda step: 0.1 / (1 + step))
    net = images(device.abstract("numpy"))
    net.compile(shared)
    net.plan_batch(2)
    del net
    real, other = (images(device.new_cpu(kernels="numpy")) for _ in range(2))
    real.compile(shared)
    other.compile(optimizer.Adam(lambda step: 0.1 / (1 + step)))
    x, y = _batch(real, 4)
    for _ in range(2):
        assert bits(real.train_one_batch(x, y)[0]) == bits(other.train_one_batch(x, y)[0])


# --- what wants values ---------------------------------------------------------------------------------------

X, Y = np.zeros((2, 3, 9, 11), "f"), np.zeros(2, int)


#: {what the message names: the call}.
WANTS_VALUES: dict[str, Callable[[FeedForwardNet], object]] = {
    "train_one_batch": lambda net: net.train_one_batch(X, Y),
    "evaluate_one_batch": lambda net: net.evaluate_one_batch(X, Y),
    "predict_one_batch": lambda net: net.predict_one_batch(X),
    "fit": lambda net: net.fit(X, Y, verbose=False),
    "evaluate": lambda net: net.evaluate(X, Y),
    "predict": lambda net: net.predict(X),
    "generate": lambda net: net.generate(np.zeros(3, int), 2),
    "forward": lambda net: net.forward(True, X),
    "gradients": lambda net: net.gradients(X, Y),
    "save": lambda net: net.save("never.h5"),
    "load": lambda net: net.load("never.h5"),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "values": lambda net: np.asarray(net.param_values()[0]),
    "values of": lambda net: net.parameters()["scores/bias"].argmax(),
    "values of a": lambda net: np.from_dlpack(net.param_values()[0]),
    "values of a tensor": lambda net: net.param_values()[0].array,
    "tensor": lambda net: net.param_values()[0].to_device("cpu"),
    "values for a tensor": lambda net: net.parameters()["scores/bias"].copy_from_numpy(np.zeros(5)),
    "'relu'": lambda net: autograd.relu(net.param_values()[0]),
    "to_device": lambda net: tensor.zeros((2,)).to_device(net.device),
    "a tensor of shape ()": lambda net: net.gradient_norm,
}


@pytest.fixture(scope="module")
def planned() -> FeedForwardNet:
    net = images(device.abstract("numpy"))
    net.compile(optimizer.Adam(), clip_global_norm=1.0)
    net.plan_batch(2)  # makes the rate and the norm, which are there for every plan
    return net


@pytest.mark.parametrize("name", WANTS_VALUES)
def test_what_wants_values_is_refused(name, planned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, step, optimizing = facts(planned.plan_batch(2)), planned.optimizer.step, planned.optimizer
    with pytest.raises(AbstractDeviceError, match="abstract numpy") as caught:
        WANTS_VALUES[name](planned)
    assert_clear(caught.value)
    assert name in str(caught.value).partition(": ")[0]
    assert not planned.unfinished_at
    assert (planned.optimizer, planned.optimizer.step) == (optimizing, step)
    assert facts(planned.plan_batch(2)) == before
    assert not list(tmp_path.iterdir())


def test_a_real_net_does_not_become_abstract():
    net = images(device.new_cpu(kernels="numpy"))
    before = all_bits(net.parameters())
    with pytest.raises(AbstractDeviceError, match="abstract numpy"):
        net.to_device(device.abstract("numpy"))
    assert all_bits(net.parameters()) == before
    assert not net.unfinished_at


class Own(Layer):
    """Its one parameter begins with what it is given."""

    def __init__(self, init: Any) -> None:
        super().__init__("own", input_sample_shape=(4,))
        self.init = init

    def setup(self, *shapes: Any) -> Any:
        self.add_parameter("scale", (4,), self.init)
        return shapes[0]


@pytest.mark.parametrize(
    ("given", "error", "culprit"),
    [("orthogonal", ShapeError, "two axes"), (initializer.HeNormal(), ValueError, "fan_in")],
)
def test_initializers_refuse_as_they_do_where_there_are_bytes(given, error, culprit):
    for on in (device.abstract("numpy"), device.new_cpu(kernels="numpy")):
        with pytest.raises(error, match=culprit):
            FeedForwardNet(device=on).add(Own(given))


# --- the device itself ---------------------------------------------------------------------------------------

ROWS = {
    "a kind that is none": row(lambda: device.abstract("tpu"), DeviceError, "abstract kernels", "'tpu'"),
    "a kind that is no text": row(lambda: device.abstract(3), DeviceError, "abstract kernels", "received 3"),
    "memory of no size": row(lambda: device.abstract("numpy", "much"), ValueError, "abstract memory", "'much'"),
    "memory that is a list": row(lambda: device.abstract("numpy", [4]), TypeError, "abstract memory", "[4]"),
    "a workspace of a CPU": row(
        lambda: device.abstract("numpy", workspace_limit=0), ValueError, "kernels='cuda' alone", "'numpy'"
    ),
    "libraries of a CPU": row(lambda: device.abstract("cpu", libraries=False), ValueError, "kernels='cuda' alone"),
    "a workspace that is a text": row(
        lambda: device.abstract("cuda", workspace_limit="1"), TypeError, "abstract workspace_limit", "'1'"
    ),
    "a default that is a text": row(lambda: device.as_default("cpu").__enter__(), TypeError, "as_default", "'cpu'"),
}


def test_misuses():
    over_rows(assert_refused, ((name, (one,)) for name, one in ROWS.items()))


def test_a_default_device_for_a_while():
    abstract, before = device.abstract("numpy"), device.default()
    with device.as_default(abstract) as given:
        assert given is device.default() is abstract
        assert FeedForwardNet().device is abstract
        assert tensor.zeros((2, 3)).device is abstract
        with device.as_default(before):
            assert device.default() is before
    assert device.default() is before


@each_set
def test_tensors_have_shapes_and_strides_as_there(kernels):
    abstract, real = device.abstract(kernels), device.new_cpu(kernels=kernels)
    for layout in ("", "image", "filters"):
        one, other = (on.empty((2, 16, 5, 7), np.float16, layout) for on in (abstract, real))
        assert (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)
        assert abstract.pool.used == real.pool.used
        del one, other
    assert abstract.pool.used == 0
    assert abstract.pool.high_water == real.pool.high_water


# --- a GPU that is not there ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_plans_of_a_gpu_are_those_of_the_stand_in(name):
    """Without NVIDIA's libraries, which a plan on a GPU asks: all that is known without them is equal to the byte."""
    real = NETS[name](new_device("stand-in", libraries=False))
    abstract = NETS[name](device.abstract("cuda", libraries=False))
    for net in (abstract, real):
        net.compile(optimizer.AdamW())
    assert facts(abstract.plan_batch(5)) == facts(real.plan_batch(5))


def test_what_the_libraries_want_lies_between_nothing_and_their_limit():
    """The stand-in for cuBLASLt wants workspace for some products and none for others."""
    devices = (
        device.abstract("cuda", workspace_limit=0),
        new_device("stand-in"),
        device.abstract("cuda"),
    )
    arenas = []
    for on in devices:
        net = text(on)
        net.compile(optimizer.AdamW())
        arenas.append(net.plan_batch(5).arena_bytes)
    assert arenas == sorted(arenas)


def test_the_libraries_workspace_is_taken_at_its_most():
    found = {}
    for limit in (0, 1 << 20, 64 << 20):
        net = images(device.abstract("cuda", workspace_limit=limit))
        net.compile(optimizer.SGD())
        plan = net.plan_batch(5)
        scratch = {r.nbytes for r in plan.rows if r.kind == "scratch" and ("matmul" in r.name or "conv2d" in r.name)}
        assert limit in scratch or (not limit and max(scratch, default=0) < 1 << 20)
        found[limit] = plan.arena_bytes
    assert found[0] < found[1 << 20] < found[64 << 20]
    assert found[64 << 20] <= found[0] + (64 << 20)
    weight = net.parameters()["conv1/weight"]
    assert weight.strides[1] == weight.dtype.itemsize, "channels innermost"
    plain = images(device.abstract("cuda", channels_last=False)).parameters()["conv1/weight"]
    assert plain.is_contiguous()


# --- what it takes -------------------------------------------------------------------------------------------

LARGE = """
import sys
def most():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

from singa_lite import FeedForwardNet, device, layers, loss, optimizer
before, count, width = most(), int(sys.argv[1]), int(sys.argv[2])
net = FeedForwardNet(loss.SquaredError(), device=device.abstract("cpu"), seed=0)
net.add(layers.Dense("d0", width, input_sample_shape=(width,)))
for number in range(1, count):
    net.add(layers.Activation(f"a{number}"))
    net.add(layers.Dense(f"d{number}", width))
net.compile(optimizer.AdamW())
plan = net.plan_batch(16)
print(sum(value.size() for value in net.param_values()), plan.total_bytes, plan.by_role["state"], most() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system has no /proc")
@pytest.mark.parametrize(("count", "width"), [(3, 8192), pytest.param(19, 32768, marks=pytest.mark.nightly)])
def test_large_nets_are_planned_in_little_memory(count, width):
    """2 GB of parameters and state; in the nightly suite 20 billion parameters."""
    done = in_process.start("-c", LARGE, str(count), str(width))
    assert done.returncode == 0, done.stderr
    parameters, total, state, taken = map(int, done.stdout.split())
    assert parameters == count * (width**2 + width)
    assert 8 * parameters <= state < 8 * parameters + 10_000
    assert 12 * parameters < total < 12.2 * parameters  # values, two moments, and hardly anything beside them
    assert taken < 200 * 2**20
