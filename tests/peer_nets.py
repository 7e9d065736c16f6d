"""Random nets as Python text: the same net here and in PyTorch, its losses, its optimizer and its batches."""

from __future__ import annotations

import random

from peer_layers import Drawn, any_layer, dense, flat

#: (how its rate compares with that of SGD, ours, PyTorch's, whose rate is set at each step).
OPTIMIZERS = (
    (1.0, "SGD(RATE)", "SGD(p, lr=1)"),
    (0.5, "SGD(RATE, 0.9, 0.2, 0.01)", "SGD(p, lr=1, momentum=0.9, dampening=0.2, weight_decay=0.01)"),
    (0.5, "Nesterov(RATE, 0.8)", "SGD(p, lr=1, momentum=0.8, nesterov=True)"),
    (0.1, "RMSProp(RATE, 0.8, 1e-4, 0.01)", "RMSprop(p, lr=1, alpha=0.8, eps=1e-4, weight_decay=0.01)"),
    (0.2, "AdaGrad(RATE)", "Adagrad(p, lr=1)"),
    (0.1, "Adam(RATE)", "Adam(p, lr=1)"),
    (0.1, "Adam(RATE, 0.7, 0.95, 1e-3, 0.02)", "Adam(p, lr=1, betas=(0.7, 0.95), eps=1e-3, weight_decay=0.02)"),
    (0.1, "AdamW(RATE, weight_decay=0.1)", "AdamW(p, lr=1, weight_decay=0.1)"),
)
RATES = ("{}", "{}", "schedule.Step({}, 2, 0.5)", "schedule.CosineWithWarmup({}, 5, 2)")
#: (loss, its arguments, whether targets are class ids); the last three want scores.
LOSSES = (
    ("SquaredError", (), False),
    ("Huber", (0.3,), False),
    ("SigmoidCrossEntropy", (), False),
    ("SoftmaxCrossEntropy", (), False),
    ("SoftmaxCrossEntropy", (), True),
)


def text(seed: int) -> str:
    """The net of this seed: definitions that `peer_training` wants, as a module's text."""
    choose = random.Random(seed)
    net = Drawn(choose)
    for _ in range(choose.choice((1, 1, 1, 2, 2, 3))):
        net.input(_input_shape(choose))
    for _ in range(choose.randint(2, 12)):
        any_layer(net)
    outputs = _ends(net)
    return "\n".join([
        f'"""A random net, its seed {seed}, here and in PyTorch."""',
        "",
        f"SEED = {seed}",
        f"BATCHES = {_batches(choose)}  # samples of each step",
        f"FREEZE = {choose.choice((0.0, 0.0, 0.0, choose.random()))!r}  # of the layers that may be",
        f"SHAPES = {({end: net.shapes[end] for end in net.shapes if str(end).startswith('in')})!r}",
        *_losses(net, outputs),
        *_optimizer(choose),
        "",
        "",
        "def ours(net, layers):",
        *(f"    {line}" for line in _shuffled(net)),
        "",
        "",
        "def theirs(v, w, batch_norm):",
        *(f"    {line}" for line in net.theirs.values()),
    ])  # fmt: skip


def _input_shape(choose: random.Random) -> tuple[int, ...]:
    """Of unequal extents, so that no two axes can be mixed up without a word."""
    rank = choose.choice((1, 2, 3, 3, 3, 3))
    return (choose.choice((2, 3, 4, 6)), *choose.sample((5, 7, 8), 2))[:rank] if rank > 1 else (choose.randint(2, 9),)


def _batches(choose: random.Random) -> list[int]:
    count = choose.choice((3, 4, 5))
    return [count] * choose.randint(1, 3) + [choose.choice((2, count))]


def _ends(net: Drawn) -> list[str]:
    """Make outputs of what is loose: as it is, behind a Dense, or several of them joined."""
    loose = net.loose()
    net.choose.shuffle(loose)
    while len(loose) > 3:
        flats = [end if len(net.shapes[end]) == 1 else flat(net, end) for end in (loose.pop(), loose.pop())]
        width = sum(net.shapes[end][0] for end in flats)
        loose.append(net.add("Concat", flats, "1", "torch.cat([<a>, <b>], 1)", (width,)))
    for end in loose:
        alone = isinstance(end, tuple) or net.kinds[end] == "Dummy"  # a piece, or an input
        if alone or not net.owners or net.choose.random() < 0.5:  # without parameters there is nothing to train
            dense(net, end)
    return [end for end in net.loose() if isinstance(end, str)]


def _losses(net: Drawn, outputs: list[str]) -> list[str]:
    lines = ["LOSSES = {  # the loss, its arguments, and whether its targets are class ids"]
    for name in outputs:
        no_scores = name in net.squashed or net.shapes[name][0] == 1
        lines.append(f"    {name!r}: {net.choose.choice(LOSSES[:2] if no_scores else LOSSES)},")
    return [*lines, "}"]


def _optimizer(choose: random.Random) -> list[str]:
    share, ours, theirs = choose.choice(OPTIMIZERS)
    rule = choose.choice((None, None, ("*/bias", 2.0, 0.0), ("*/weight", 0.5, 1.0)))
    clip = choose.choice((None, None, None, ("ElementConstraint", 0.05), ("NormConstraint", 0.1)))
    rate = choose.choice(RATES).format(share * choose.choice((0.05, 0.02)))
    return [
        f"RULE = {rule}  # pattern, lr_mult, decay_mult",
        f"CLIP = {clip}",
        f"PENALTY = {choose.choice((0.0, 0.0, 0.05))}  # of the L2 regularizer",
        "",
        "",
        "def our_optimizer(optimizer, schedule):",
        f"    return optimizer.{ours.replace('RATE', rate)}",
        "",
        "",
        "def their_optimizer(optimizer, schedule, p):",
        f"    return optimizer.{theirs}, {rate}",
    ]


def _shuffled(net: Drawn) -> list[str]:
    """The lines in another order, but those who share parameters behind the owners of these."""
    names = list(net.ours)
    if net.choose.random() < 0.5:
        net.choose.shuffle(names)
        for name, owner in net.sharers.items():
            if names.index(name) < names.index(owner):
                names.remove(name)
                names.insert(names.index(owner) + 1, name)
    return [net.ours[name] for name in names]
