"""Layers drawn at random, each as two lines of Python: one that adds it to a net, one that does the same in PyTorch."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

Shape = tuple[int, ...]
#: Where a value comes from: a layer's name, or (name, number of the output).
End = str | tuple[str, int]

MODES = ("relu", "relu6", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "silu", "softplus")
OTHERS = ("Dropout", "Dummy", "Softmax", "Flatten", "Reshape", "Upsampling2D", "GlobalAvgPooling2D")
#: Layers that give what they take, perhaps in another shape or in pieces.
KEEPING = ("Dropout", "Dummy", "Flatten", "Reshape", "Upsampling2D", "Slice", "Split")
#: Samples have at most so many elements, so that a net takes milliseconds.
MOST = 400


@dataclass
class Drawn:
    """A net as it is drawn: lines by layer, and the ends that later layers may take."""

    choose: random.Random
    ours: dict[str, str] = field(default_factory=dict)
    theirs: dict[str, str] = field(default_factory=dict)
    shapes: dict[End, Shape] = field(default_factory=dict)
    taken: set[End] = field(default_factory=set)
    sharers: dict[str, str] = field(default_factory=dict)  # who shares -> whose parameters
    owners: dict[tuple[object, ...], str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    squashed: set[str] = field(
        default_factory=set
    )  # what gives a softmax or sigmoid, which some losses take themselves

    def add(self, kind: str, ends: list[End], arguments: str, value: str, *shapes: Shape) -> End:
        """One more layer over the ends. value: PyTorch's expression, over a, b, ... for the ends; its first end."""
        name = f"{'qdxkbz'[len(self.ours) % 6]}{len(self.ours)}"  # whose order is not that of adding
        share = f".share_parameters(net.layers[{self.sharers[kind]!r}])" if kind in self.sharers else ""
        if share:
            self.sharers[name] = self.sharers.pop(kind)
        source = repr(ends[0]) if len(ends) == 1 else repr(ends)
        arguments = ", ".join(part for part in (repr(name), arguments) if part)
        self.ours[name] = f"net.add(layers.{kind}({arguments}){share}, {source})"
        for letter, end in zip("abc", ends, strict=False):
            value = value.replace(f"<{letter}>", f"v[{end!r}]" if isinstance(end, str) else f"v[{end[0]!r}][{end[1]}]")
        for what in ("weight", "bias", "gamma", "beta"):
            value = value.replace(f"<{what}>", f"w({self.sharers.get(name, name)!r}, {name!r}, {what!r})")
        self.theirs[name] = f"v[{name!r}] = {value.replace('<name>', repr(name))}"
        self.taken.update(ends)
        self.kinds[name] = kind
        before = ends[0] if isinstance(ends[0], str) else ends[0][0]
        if kind == "Softmax" or "'sigmoid'" in arguments or (kind in KEEPING and before in self.squashed):
            self.squashed.add(name)
        made: list[End] = [name] if len(shapes) == 1 else [(name, place) for place in range(len(shapes))]
        self.shapes |= zip(made, shapes, strict=True)
        return made[0]

    def input(self, shape: Shape) -> None:
        """An input layer, Dummy, whose value PyTorch's side has beforehand."""
        name = f"in{len(self.ours)}"
        self.ours[name] = f"net.add(layers.Dummy({name!r}, input_sample_shape={shape}), [])"
        self.shapes[name], self.kinds[name] = shape, "Dummy"

    def loose(self) -> list[End]:
        """Ends that nobody takes, but for left-over pieces of a layer that others take."""
        used = {end[0] for end in self.taken if isinstance(end, tuple)}
        return [end for end in self.shapes if end not in self.taken and not (isinstance(end, tuple) and end[0] in used)]

    def share(self, kind: str, form: tuple[object, ...]) -> None:
        """Perhaps let the layer of this kind that comes next use the parameters of one whose form is equal."""
        owner = self.owners.get((kind, *form))
        if owner is not None and self.choose.random() < 0.4:
            self.sharers[kind] = owner

    def own(self, kind: str, form: tuple[object, ...], name: End) -> None:
        """This layer's parameters may be shared."""
        if isinstance(name, str) and name not in self.sharers:
            self.owners[kind, *form] = name


def _windows(net: Drawn, extents: Shape, dilated: bool, pooling: bool) -> tuple[str, str, Shape] | None:
    """(our arguments, PyTorch's, extents of the result) of windows over images or sequences; None if none fits."""
    pick, axes = net.choose.randint, len(extents)
    kernel = [pick(1, 3) for _ in extents]
    stride = [pick(1, 2) for _ in extents]
    dilation = [pick(1, 2) if dilated else 1 for _ in extents]
    most = [size - 1 if pooling else 2 for size in kernel]
    pad = [min(pick(0, 2), most[place // 2]) for place in range(2 * axes)]
    made = []
    for place, extent in enumerate(extents):
        span = extent + pad[2 * place] + pad[2 * place + 1] - dilation[place] * (kernel[place] - 1) - 1
        made.append(span // stride[place] + 1)
        if span < 0:
            return None
    options = {"stride": stride, "dilation": dilation} if dilated else {"stride": stride}
    ours = ", ".join(
        [_entry(kernel), *(f"{what}={_entry(each)}" for what, each in options.items()), f"pad={tuple(pad)}"]
    )
    theirs = f"{tuple(kernel)}, {tuple(stride)}, {tuple(pad)}, {tuple(dilation)}"
    return ours, theirs, tuple(made)


def _entry(values: list[int]) -> str:
    """As a layer takes it: a number for sequences, a pair for images."""
    return str(values[0] if len(values) == 1 else tuple(values))


def convolution(net: Drawn, end: End) -> None:
    channels, *extents = net.shapes[end]
    drawn = _windows(net, tuple(extents), True, False)
    groups = net.choose.choice([n for n in (1, 1, 2, 3, channels) if channels % n == 0])
    kernels = groups * net.choose.randint(1, max(1, 6 // groups))
    if drawn is None or kernels * prod(drawn[2]) > MOST:
        return
    ours, theirs, made = drawn
    kind, bias = f"Conv{len(extents)}D", net.choose.random() < 0.8
    form = (kernels, channels // groups, theirs.split(")")[0], bias)
    net.share(kind, form)
    options = f", groups={groups}, use_bias={bias}"
    value = f"conv(<a>, <weight>, {'<bias>' if bias else None}, {theirs}, {groups})"
    net.own(kind, form, net.add(kind, [end], f"{kernels}, {ours}{options}", value, (kernels, *made)))


def pooling(net: Drawn, end: End) -> None:
    channels, *extents = net.shapes[end]
    drawn = _windows(net, tuple(extents), False, True)
    if drawn is None:
        return
    ours, theirs, made = drawn
    if net.choose.random() < 0.5:
        net.add(f"MaxPooling{len(extents)}D", [end], ours, f"max_pool(<a>, {theirs})", (channels, *made))
    else:
        counted = net.choose.random() < 0.5
        value = f"avg_pool(<a>, {theirs}, {counted})"
        net.add(f"AvgPooling{len(extents)}D", [end], f"{ours}, count_pad={counted}", value, (channels, *made))


def dense(net: Drawn, end: End) -> None:
    if len(net.shapes[end]) > 1:
        end = flat(net, end)
    (given,), width, bias = net.shapes[end], net.choose.randint(1, 7), net.choose.random() < 0.8
    net.share("Dense", form := (given, width, bias))
    value = f"<a> @ <weight>{' + <bias>' if bias else ''}"
    net.own("Dense", form, net.add("Dense", [end], f"{width}, use_bias={bias}", value, (width,)))


def normalization(net: Drawn, end: End) -> None:
    shape, epsilon = net.shapes[end], net.choose.choice((1e-5, 1e-3, 0.1))
    kind = net.choose.choice(("BatchNormalization", "BatchNormalization", "LayerNormalization", "LRN", "L2Norm"))
    if kind == "BatchNormalization":
        momentum = net.choose.choice((0.1, 0.3, 0.9))
        net.share(kind, shape[:1])
        value = f"batch_norm(<a>, <gamma>, <beta>, <name>, {momentum}, {epsilon})"
        net.own(kind, shape[:1], net.add(kind, [end], f"{momentum}, epsilon={epsilon}", value, shape))
    elif kind == "LayerNormalization":
        axis = net.choose.randint(1, len(shape))
        form = shape[axis - 1 :]
        net.share(kind, form)
        value = f"F.layer_norm(<a>, {form}, <gamma>, <beta>, {epsilon})"
        net.own(kind, form, net.add(kind, [end], f"{axis}, epsilon={epsilon}", value, shape))
    elif kind == "LRN" and len(shape) > 1:
        size, alpha, beta, k = net.choose.choice((1, 3, 5)), 0.8, net.choose.choice((0.5, 0.75)), 1.5
        value = f"F.local_response_norm(<a>, {size}, {alpha}, {beta}, {k})"
        net.add(kind, [end], f"{size}, {alpha}, {beta}, k={k}", value, shape)
    elif kind == "L2Norm":
        net.add(kind, [end], f"{epsilon}", f"l2_norm(<a>, {epsilon})", shape)


def activation(net: Drawn, end: End) -> None:
    mode = net.choose.choice(MODES)
    option = {"leaky_relu": ", slope=0.2", "elu": ", alpha=0.7"}.get(mode, "")
    net.add("Activation", [end], f"{mode!r}{option}", f"activation(<a>, {mode!r}{option})", net.shapes[end])


def other(net: Drawn, end: End) -> None:
    shape = net.shapes[end]
    kind = net.choose.choice(
        ("Dropout", "Dummy", "Softmax", "Flatten", "Reshape", "Upsampling2D", "GlobalAvgPooling2D")
    )
    if kind == "Dropout":
        net.add(kind, [end], "0", "<a>", shape)
    elif kind == "Dummy":
        net.add(kind, [end], "", "<a>", shape)
    elif kind == "Softmax":
        axis = net.choose.randint(1, len(shape))
        net.add(kind, [end], f"{axis}", f"<a>.softmax({axis})", shape)
    elif kind == "Flatten":
        axis = net.choose.randint(1, len(shape))
        net.add(kind, [end], f"{axis}", f"<a>.flatten({axis})", (*shape[: axis - 1], prod(shape[axis - 1 :])))
    elif kind == "Reshape":
        first = net.choose.choice([n for n in range(1, prod(shape) + 1) if prod(shape) % n == 0 and n < 9])
        made = (first, prod(shape) // first)
        net.add(kind, [end], f"({first}, -1)", f"<a>.reshape(-1, {made[0]}, {made[1]})", made)
    elif kind == "Upsampling2D" and len(shape) == 3 and 6 * prod(shape) < MOST:
        factor = net.choose.choice(((2, 1), (1, 3), (3, 2)))
        made = (shape[0], shape[1] * factor[0], shape[2] * factor[1])
        value = f"<a>.repeat_interleave({factor[0]}, 2).repeat_interleave({factor[1]}, 3)"
        net.add(kind, [end], f"{factor}", value, made)
    elif kind == "GlobalAvgPooling2D" and len(shape) == 3:
        net.add(kind, [end], "", "<a>.mean((2, 3))", shape[:1])


def flat(net: Drawn, end: End) -> End:
    return net.add("Flatten", [end], "", "<a>.flatten(1)", (prod(net.shapes[end]),))


def merge(net: Drawn, end: End) -> None:
    shape = net.shapes[end]
    equal = [one for one, other in net.shapes.items() if other == shape]
    ends = [end, *(net.choose.choice(equal) for _ in range(net.choose.randint(1, 2)))]  # perhaps one end twice
    if net.choose.random() < 0.6:
        net.add("Merge", ends, "", " + ".join(["<a>", "<b>", "<c>"][: len(ends)]), shape)
    else:  # products of products would soon leave the floats
        made = net.add("Multiply", ends, "", " * ".join(["<a>", "<b>", "<c>"][: len(ends)]), shape)
        net.add("Activation", [made], "'tanh'", "activation(<a>, 'tanh')", shape)


def concat(net: Drawn, end: End) -> None:
    shape = net.shapes[end]
    axis = net.choose.randint(1, len(shape))
    but = shape[: axis - 1], shape[axis:]
    alike = [one for one, s in net.shapes.items() if len(s) == len(shape) and (s[: axis - 1], s[axis:]) == but]
    ends = [end, *(net.choose.choice(alike) for _ in range(net.choose.randint(1, 2)))]
    extent = sum(net.shapes[each][axis - 1] for each in ends)
    if extent * prod(shape) // shape[axis - 1] > MOST:
        return
    value = f"torch.cat([{', '.join(['<a>', '<b>', '<c>'][: len(ends)])}], {axis})"
    net.add("Concat", ends, f"{axis}", value, (*but[0], extent, *but[1]))


def cut(net: Drawn, end: End) -> None:
    shape = net.shapes[end]
    if net.choose.random() < 0.3:
        count = net.choose.randint(2, 3)
        net.add("Split", [end], f"{count}", f"[<a>] * {count}", *[shape] * count)
        return
    axis = net.choose.randint(1, len(shape))
    if shape[axis - 1] == 1:
        return
    points = sorted(net.choose.sample(range(1, shape[axis - 1]), min(2, shape[axis - 1] - 1)))
    sizes = [stop - start for start, stop in pairwise([0, *points, shape[axis - 1]])]
    pieces = [(*shape[: axis - 1], size, *shape[axis:]) for size in sizes]
    net.add("Slice", [end], f"{axis}, {points}", f"<a>.split({sizes}, {axis})", *pieces)


def spatial(net: Drawn, end: End) -> None:
    """A layer of windows where there are images or sequences, else Dense."""
    kind = net.choose.choice((convolution, convolution, pooling)) if len(net.shapes[end]) > 1 else dense
    kind(net, end)


KINDS = {spatial: 6, dense: 2, normalization: 4, activation: 4, other: 2, merge: 2, concat: 2, cut: 2}


def any_layer(net: Drawn) -> None:
    """One more layer over any end, those made last more often."""
    ends = list(net.shapes)
    end = net.choose.choice(ends[-4:] if net.choose.random() < 0.7 else ends)
    (kind,) = net.choose.choices(list(KINDS), list(KINDS.values()))
    kind(net, end)
