"""Learning-rate schedules: constant, in steps, exponential, a cosine with warm-up, and a function of one's own.

    pip install ".[examples,onednn]" && python examples/gallery/schedules.py

Each gives 95 % or more of a held-out fifth in 12 epochs of the same net, and the rate of the last step is as its
formula says.

Porting: a schedule counts updates, not epochs, as Keras's LearningRateSchedule does. LearningRateScheduler(function
of the epoch) is a function of the step: lambda step: rate(step // steps_per_epoch). net.optimizer.lr is the next
step's rate.
"""

from bundled import digits, perceptron, planned_kib, show

from singa_lite import optimizer, schedule


def main(epochs: int = 12) -> dict[str, float]:
    """Train the same net by five schedules."""
    x, x_test, y, y_test = digits()
    steps = epochs * -(-len(x) // 32)
    rates = {
        "constant": 0.1,
        "steps": schedule.Step(0.1, [steps // 2, steps * 3 // 4], factor=0.1),
        "exponential": schedule.Exponential(0.1, decay_steps=steps, decay_rate=0.1),
        "cosine": schedule.CosineWithWarmup(0.2, total_steps=steps, warmup_steps=steps // 10),
        "own": lambda step: 0.1 / (1 + 0.01 * step),
    }
    results = {}
    for name, rate in rates.items():
        net = perceptron(64)
        net.compile(optimizer.SGD(lr=rate, momentum=0.9))
        net.fit(x, y, batch_size=32, epochs=epochs, verbose=False)
        results[name] = net.evaluate(x_test, y_test)[1]
        results[f"{name}: next rate"] = net.optimizer.lr
    return {**results, "steps": steps, "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
