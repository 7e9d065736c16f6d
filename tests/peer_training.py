"""Train a net here and in PyTorch from equal numbers, and say where they differ by more than rounding explains.

What rounding explains is measured. PyTorch's float64 run is the truth. PyTorch trains the same net a few times more in
the precision that is tried, from inputs and through weights that are each off by 8 units of rounding, which moves every
sum by about as much as rounding does (benchmarks/agreement.py tells more). How far these come from the truth is
the noise of a tensor; ours may be FACTOR times as far, and LAST_PLACES units of the tensor's size further.

A ReLU whose input is about 0 turns one rounding into another gradient, and an optimizer that divides by the gradient's
size turns one that should be 0 into a step. Few runs may miss both, so a net that fails is measured again, element by
element, by MORE runs whose gradients are each off by one unit of the largest gradient besides.

The text of this module goes into the script that replays a failure: it imports nothing of the tests.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from singa_lite import FeedForwardNet, device, layers, loss, optimizer, regularizer, schedule, tensor

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}
FACTOR, LAST_PLACES = 4.0, 32.0
RUNS, MORE = 2, 40  # perturbed runs

Array = np.ndarray
Outcome = dict[str, Array]


class Way(NamedTuple):
    """How our net is trained."""

    dtype: str
    kernels: str
    graph: bool
    fuse: bool
    plan: str = ""  # SINGA_LITE_PLAN
    checked: str = ""  # SINGA_LITE_CHECKED


class Data(NamedTuple):
    """Initial values by parameter, and (inputs, targets) by batch; float64 arrays of float32 numbers, and class ids."""

    values: dict[str, Array]
    batches: list[tuple[dict[str, Array], dict[str, Array]]]
    freeze: str | None
    frozen: frozenset[str]

    def joined(self, dtype: str) -> tuple[dict[str, Array], dict[str, Array]]:
        """All batches as one."""
        first = self.batches[0]
        return tuple(
            _as({name: np.concatenate([batch[side][name] for batch in self.batches]) for name in first[side]}, dtype)
            for side in (0, 1)
        )


# --- PyTorch's side: what the lines of a net call --------------------------------------------------------------


def padded(x: Any, pad: tuple[int, ...], value: float = 0.0) -> Any:
    """pad: (left, right) or (top, bottom, left, right)."""
    return F.pad(x, (*pad[2:], *pad[:2]), value=value)


def conv(x: Any, w: Any, b: Any, kernel: Any, stride: Any, pad: Any, dilation: Any, groups: int) -> Any:
    if x.dim() == 3:
        return F.conv1d(padded(x, pad), w.squeeze(2), b, stride, 0, dilation, groups)
    return F.conv2d(padded(x, pad), w, b, stride, 0, dilation, groups)


def max_pool(x: Any, kernel: Any, stride: Any, pad: Any, dilation: Any) -> Any:
    pool = F.max_pool1d if x.dim() == 3 else F.max_pool2d
    return pool(padded(x, pad, -torch.inf), kernel, stride)


def avg_pool(x: Any, kernel: Any, stride: Any, pad: Any, dilation: Any, counted: bool) -> Any:
    pool = F.avg_pool1d if x.dim() == 3 else F.avg_pool2d
    y = pool(padded(x, pad), kernel, stride)
    return y if counted else y / pool(padded(torch.ones_like(x), pad), kernel, stride)


def activation(x: Any, mode: str, slope: float = 0.01, alpha: float = 1.0) -> Any:
    if mode == "leaky_relu":
        return F.leaky_relu(x, slope)
    if mode == "elu":
        return F.elu(x, alpha)
    if mode == "softplus":  # theirs is x itself above 20
        return torch.logaddexp(x, torch.zeros_like(x))
    return getattr(F, mode)(x)


def l2_norm(x: Any, epsilon: float) -> Any:
    return (x.flatten(1) / torch.sqrt((x * x).flatten(1).sum(1, keepdim=True) + epsilon)).view_as(x)


# --- both sides ------------------------------------------------------------------------------------------------


def _as(arrays: dict[str, Array], dtype: str) -> dict[str, Array]:
    return {name: array if array.dtype.kind == "i" else array.astype(dtype) for name, array in arrays.items()}


def built(twin: Any, way: Way) -> FeedForwardNet:
    """Our net, not yet compiled."""
    net = FeedForwardNet(device=device.new_cpu(kernels=way.kernels), dtype=way.dtype, seed=twin.SEED)
    twin.ours(net, layers)
    return net


def data_of(twin: Any) -> Data:
    """Numbers for both sides."""
    net, rng = built(twin, Way("float64", "numpy", False, False)), np.random.default_rng(twin.SEED)

    def numbers(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32).astype(np.float64)

    values = {}
    for name, value in net.parameters().items():
        kind = name.rpartition("/")[2]
        first = tensor.to_numpy(value) if kind == "weight" else (kind == "gamma") + 0.3 * numbers(*value.shape)
        values[name] = first.astype(np.float32).astype(np.float64)
    batches = []
    for count in twin.BATCHES:
        x = {name: numbers(count, *shape) for name, shape in twin.SHAPES.items()}
        y = {name: _target(twin, name, (count, *net.output_shapes(name)[0]), rng) for name in net.output_names()}
        batches.append((x, y))
    order = [node.layer.name for node in net.ordered()]
    last = min(map(order.index, net.output_names()))  # an output before it would have nothing to train
    while last and not any(net.layers[name].parameters for name in order[last:]):
        last -= 1
    place = int(twin.FREEZE * (last + 1))
    return Data(values, batches, order[place] if place else None, frozenset(order[:place]))


def _target(twin: Any, name: str, shape: tuple[int, ...], rng: Any) -> Array:
    kind, _, ids = twin.LOSSES[name]
    if ids:
        return rng.integers(0, shape[1], (shape[0], *shape[2:]))
    if kind.endswith("CrossEntropy"):
        return rng.uniform(0.1, 0.9, shape).astype(np.float32).astype(np.float64)
    return rng.standard_normal(shape).astype(np.float32).astype(np.float64)


@contextmanager
def environment(way: Way) -> Iterator[None]:
    """The settings of a way."""
    wanted = {"SINGA_LITE_PLAN": way.plan, "SINGA_LITE_CHECKED": way.checked}
    before = {name: os.environ.get(name, "") for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        os.environ |= before


def optimizer_of(twin: Any, names: list[str]) -> optimizer.Optimizer:
    """Ours, its rules included."""
    made: optimizer.Optimizer = twin.our_optimizer(optimizer, schedule)
    clip = getattr(regularizer, twin.CLIP[0])(twin.CLIP[1]) if twin.CLIP else None
    penalty = regularizer.L2Regularizer(twin.PENALTY) if twin.PENALTY else None
    made.register("*", constraint=clip, regularizer=penalty)
    if twin.RULE and any(fnmatchcase(name, twin.RULE[0]) for name in names):
        made.register(twin.RULE[0], lr_mult=twin.RULE[1], decay_mult=twin.RULE[2], constraint=clip, regularizer=penalty)
    return made


def compiled(twin: Any, way: Way, data: Data) -> FeedForwardNet:
    """Our net with the common numbers, ready to train."""
    net = built(twin, way)
    for name, value in net.parameters().items():
        value.copy_from_numpy(data.values[name].astype(way.dtype))
    losses = {
        name: getattr(loss, kind)(*arguments, **({"axis": 1} if ids else {}))
        for name, (kind, arguments, ids) in twin.LOSSES.items()
    }
    net.compile(optimizer_of(twin, net.param_names()), losses, graph=way.graph, fuse=way.fuse, freeze=data.freeze)
    return net


def trained(twin: Any, way: Way, data: Data) -> tuple[FeedForwardNet, Outcome]:
    """Our net after all steps, and what is compared: gradients, losses, all values, evaluation and predictions."""
    with environment(way):
        net = compiled(twin, way, data)
        seen: Outcome = {}
        for step, (x, y) in enumerate(data.batches):
            x, y = _as(x, way.dtype), _as(y, way.dtype)
            if step == 0:
                seen |= {f"gradient of {n}": tensor.to_numpy(g) for n, g in net.gradients(x, y).items()}
            seen[f"loss of step {step}"] = tensor.to_numpy(net.train_one_batch(x, y)[0])
        seen |= {name: tensor.to_numpy(value) for name, value in (net.parameters() | net.states()).items()}
        x, y = data.joined(way.dtype)
        batch_size = 4 if twin.SEED % 3 == 0 else 64  # in pieces, the last shorter, or at once
        seen["evaluation"] = np.array(net.evaluate(x, y, batch_size)[0])
        predicted = net.predict(x, batch_size)
        predicted = predicted if isinstance(predicted, dict) else {net.output_names()[0]: predicted}
        return net, seen | {f"prediction of {name}": tensor.to_numpy(value) for name, value in predicted.items()}


class Theirs:
    """PyTorch's side of a net.

    perturbed: a generator of signs, by which inputs and weights are off while a step passes; shaken: so are gradients.
    """

    def __init__(self, twin: Any, data: Data, dtype: str, perturbed: Any = None, shaken: bool = False) -> None:
        self.twin, self.data, self.dtype, self.perturbed, self.shaken = twin, data, dtype, perturbed, shaken
        self.p = {name: self._tensor(value).requires_grad_() for name, value in data.values.items()}
        self.running: dict[str, Array] = {}
        self.multipliers = dict.fromkeys(self.p, (1.0, 1.0))  # of rate and decay
        if twin.RULE:
            self.multipliers |= {name: twin.RULE[1:] for name in self.p if fnmatchcase(name, twin.RULE[0])}
        groups = [{"params": [parameter]} for parameter in self.p.values()]
        self.optimizer, rate = twin.their_optimizer(torch.optim, schedule, groups)
        self.rate = schedule.get(rate)
        for group, (_, decay) in zip(self.optimizer.param_groups, self.multipliers.values(), strict=True):
            group["weight_decay"] *= decay

    def _tensor(self, array: Array) -> Any:
        return torch.tensor(array if array.dtype.kind == "i" else array.astype(self.dtype))

    def _off(self, like: Any, units: float) -> Any:
        """So many units of rounding, up or down at random."""
        return self._tensor(units * UNIT[self.dtype] * self.perturbed.choice([-1.0, 1.0], tuple(like.shape)))

    def forward(self, x: dict[str, Array], training: bool) -> dict[str, Any]:
        """All layers' values."""

        def w(owner: str, name: str, kind: str) -> Any:
            value = self.p[f"{owner}/{kind}"]
            if self.perturbed is not None:
                value = value * (1 + self._off(value, 8))
            return value.detach() if name in self.data.frozen else value

        def batch_norm(x: Any, gamma: Any, beta: Any, name: str, momentum: float, epsilon: float) -> Any:
            if f"{name}/running_mean" not in self.running:
                self.running[f"{name}/running_mean"] = torch.zeros_like(gamma).detach()
                self.running[f"{name}/running_var"] = torch.ones_like(gamma).detach()
            kept = self.running[f"{name}/running_mean"], self.running[f"{name}/running_var"]
            return F.batch_norm(x, *kept, gamma, beta, training and name not in self.data.frozen, momentum, epsilon)

        values = {name: self._tensor(array) for name, array in x.items()}
        if self.perturbed is not None:
            values = {name: value * (1 + self._off(value, 8)) for name, value in values.items()}
        self.twin.theirs(values, w, batch_norm)
        return values

    def loss(self, values: dict[str, Any], y: dict[str, Array]) -> Any:
        """The sum of the outputs' losses."""
        return sum(
            self._loss(kind, values[name], self._tensor(y[name]), *arguments)
            for name, (kind, arguments, _) in self.twin.LOSSES.items()
        )

    def _loss(self, kind: str, x: Any, y: Any, delta: float = 1.0) -> Any:
        if kind == "SquaredError":
            return ((x - y) ** 2).mean() / 2
        if kind == "SigmoidCrossEntropy":
            return F.binary_cross_entropy_with_logits(x, y)
        if kind == "SoftmaxCrossEntropy":
            return F.cross_entropy(x, y / y.sum(1, keepdim=True) if y.is_floating_point() else y)
        return F.huber_loss(x, y, delta=delta)

    def gradients(self, x: dict[str, Array], y: dict[str, Array]) -> Any:
        """Put them where PyTorch has them; the loss."""
        self.optimizer.zero_grad()
        value = self.loss(self.forward(x, True), y)
        value.backward()
        gradients = [p.grad for p in self.p.values() if p.grad is not None]
        largest = max((gradient.abs().max().item() for gradient in gradients), default=0.0)
        for gradient in gradients if self.shaken else ():
            gradient += largest * self._off(gradient, 1)
        return value.detach()

    def step(self, number: int, x: dict[str, Array], y: dict[str, Array]) -> Any:
        """One training step; the loss."""
        value = self.gradients(x, y)
        for name, parameter in self.p.items():
            gradient, clip = parameter.grad, self.twin.CLIP
            if gradient is None:
                continue
            if clip and clip[0] == "ElementConstraint":
                gradient.clamp_(-clip[1], clip[1])
            elif clip:
                gradient *= min(1.0, clip[1] / max(gradient.norm().item(), 1e-300))
            gradient += self.twin.PENALTY * self.multipliers[name][1] * parameter.detach()
        for group, (multiplier, _) in zip(self.optimizer.param_groups, self.multipliers.values(), strict=True):
            group["lr"] = self.rate(number) * multiplier
        self.optimizer.step()
        return value

    def outcome(self) -> Outcome:
        """What `trained` gives, from PyTorch."""
        seen: dict[str, Any] = {}
        for number, (x, y) in enumerate(self.data.batches):
            if number == 0:
                self.gradients(x, y)
                seen |= {f"gradient of {n}": p.grad.clone() for n, p in self.p.items() if p.grad is not None}
            seen[f"loss of step {number}"] = self.step(number, x, y)
        seen |= self.p | self.running
        x, y = self.data.joined(self.dtype)
        with torch.no_grad():
            values = self.forward(x, False)
            seen["evaluation"] = self.loss(values, y)
        seen |= {f"prediction of {name}": values[name] for name in self.twin.LOSSES}
        return {name: value.detach().numpy().astype(np.float64) for name, value in seen.items()}


# --- the comparison --------------------------------------------------------------------------------------------


class Peer:
    """The truth of a net, and how far from it PyTorch's own rounding leads."""

    def __init__(self, twin: Any) -> None:
        self.twin, self.data = twin, data_of(twin)
        self.truth = Theirs(twin, self.data, "float64").outcome()
        self._noise: dict[tuple[str, bool], Outcome] = {}

    def noise(self, dtype: str, again: bool) -> Outcome:
        """The largest distance from the truth in each element, over RUNS runs, or MORE runs the second time."""
        if (dtype, again) not in self._noise:
            rng = np.random.default_rng([self.twin.SEED, again])
            sides = [Theirs(self.twin, self.data, dtype, rng, again) for _ in range(MORE if again else RUNS)]
            runs = [side.outcome() for side in [Theirs(self.twin, self.data, dtype), *sides]]
            self._noise[dtype, again] = {
                name: np.max([_distances(run[name], value) for run in runs], axis=0)
                for name, value in self.truth.items()
            }
        return self._noise[dtype, again]

    def complaints(self, way: Way, seen: Outcome) -> list[str]:
        """One for each tensor of ours that is further from the truth than rounding explains."""
        if set(seen) - {n for n in seen if n.endswith("/random")} != set(self.truth):
            return [f"{way}: wanted {sorted(self.truth)}, received {sorted(seen)}"]
        found = self._beyond(way, seen, again=False)
        return self._beyond(way, seen, again=True) if found else []

    def _beyond(self, way: Way, seen: Outcome, again: bool) -> list[str]:
        noise, found = self.noise(way.dtype, again), []
        for name, value in self.truth.items():
            size = np.abs(value).max(initial=0)
            near = noise[name] if again else noise[name].max(initial=0)
            allowed = FACTOR * near + LAST_PLACES * UNIT[way.dtype] * size
            beyond = _distances(seen[name], value) - allowed
            if not (beyond <= 0).all():
                place = np.unravel_index(int(beyond.argmax()), beyond.shape)
                bound = np.broadcast_to(allowed, beyond.shape)[place]
                at = f"{name}{list(map(int, place))}"
                found.append(f"{way}: {at} is off by {bound + beyond[place]:.2e}, allowed {bound:.2e}, size {size:.2e}")
        return found


def _distances(a: Array, b: Array) -> Array:
    """How far each element is off; infinite where only one is finite, or shapes differ."""
    if a.shape != b.shape:
        return np.full(b.shape, np.inf)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), np.where(a == b, 0.0, np.inf))


def state(net: FeedForwardNet) -> dict[str, bytes]:
    """All bits of a net and its optimizer."""
    found = {name: tensor.to_numpy(value) for name, value in (net.parameters() | net.states()).items()}
    for name, slots in net.optimizer.state.items():
        found |= {f"{name}: {slot}": tensor.to_numpy(value) for slot, value in slots.items()}
    return {name: array.tobytes() for name, array in found.items()}


def different(what: str, one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """A complaint for each entry whose bits differ."""
    bits = [{n: v if isinstance(v, bytes) else v.tobytes() for n, v in side.items()} for side in (one, other)]
    return [f"{what}: {name} differs" for name in {**one, **other} if bits[0].get(name) != bits[1].get(name)]


def consistency(twin: Any, way: Way, data: Data, net: FeedForwardNet, seen: Outcome) -> list[str]:
    """Complaints unless what must be equal to the bit is: however it is run, and after it was saved and loaded."""
    found = []
    others = [way._replace(graph=True, plan="off"), way._replace(graph=True, checked="1")]
    if not way.fuse:
        others.append(way._replace(graph=False))
    if not way.graph:
        net, seen = trained(twin, way._replace(graph=True), data)
    for other in others:
        again, values = trained(twin, other, data)
        found += different(f"{other} beside {way}", values, seen) + different(f"{other}", state(again), state(net))
    return found + _saved_and_loaded(twin, way._replace(graph=True), data, net)


def _saved_and_loaded(twin: Any, way: Way, data: Data, net: FeedForwardNet) -> list[str]:
    again = compiled(twin, way, data)
    with tempfile.TemporaryDirectory() as folder:
        net.save(f"{folder}/net.h5")
        again.load(f"{folder}/net.h5")
    found = different("loaded", state(again), state(net))
    x, y = (_as(side, way.dtype) for side in data.batches[0])
    for each in (net, again):
        each.train_one_batch(x, y)
    return found + different("a step after loading", state(again), state(net))


def complaints(twin: Any, ways: list[Way], inspected: Way | None) -> list[str]:
    """All complaints of one net, trained in these ways; inspected: the one whose consistency is looked at too."""
    peer, found = Peer(twin), []
    for way in ways:
        net, seen = trained(twin, way, peer.data)
        found += peer.complaints(way, seen)
        if way == inspected:
            found += consistency(twin, way, peer.data, net, seen)
    return found
