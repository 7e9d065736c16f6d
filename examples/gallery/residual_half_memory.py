"""A residual net in 60 % of its memory: the same losses, bit for bit, and the peak known beforehand.

    pip install ".[examples,onednn]" && python examples/gallery/residual_half_memory.py

It takes at most 60 % of what it takes without a budget; all losses are equal to the last bit.

Porting: Keras's RematScope is compile(memory_budget="8 MiB"): bytes are said, and what is computed again is chosen.
The identity connection of keras.layers.add is Residual(name, [layers]).
"""

from bundled import digits, show

from singa_lite import FeedForwardNet, Layer, layers, optimizer


def build(blocks: int, budget: int | None) -> FeedForwardNet:
    """Residual blocks of two convolutions."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Conv2D(16, 3, input_sample_shape=(1, 8, 8)))
    for number in range(blocks):
        net.add(layers.Residual(f"block{number}", block()))
        net.add(layers.Activation(mode="relu"))
    net.add(layers.GlobalAvgPooling2D())
    net.add(layers.Dense(10))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), memory_budget=budget)
    return net


def block() -> list[Layer]:
    """What is added to the block's input."""
    return [
        layers.Conv2D("conv1", 16, 3, use_bias=False),
        layers.BatchNormalization("norm1"),
        layers.Activation("relu"),
        layers.Conv2D("conv2", 16, 3, use_bias=False),
        layers.BatchNormalization("norm2"),
    ]


def main(epochs: int = 6, count: int | None = None, batch_size: int = 64, blocks: int = 4) -> dict[str, float]:
    """Train twice, and compare."""
    x, x_test, y, y_test = digits()
    x, y = x[:count], y[:count]
    x, y = x[: len(x) // batch_size * batch_size], y[: len(y) // batch_size * batch_size]
    free = build(blocks, None)
    whole = free.plan_batch(batch_size).total_bytes
    tight = build(blocks, whole * 6 // 10)
    plan = tight.plan_batch(batch_size)
    losses = [net.fit(x, y, batch_size, epochs, verbose=False)["loss"] for net in (free, tight)]
    return {
        "accuracy": tight.evaluate(x_test, y_test, batch_size)[1],
        "losses that differ": sum(one != other for one, other in zip(*losses, strict=True)),
        "planned KiB, free": whole / 1024,
        "planned KiB": plan.total_bytes / 1024,
        "planned of free": plan.total_bytes / whole,
        "operations done again": plan.recomputed,
    }


if __name__ == "__main__":
    show(main())
