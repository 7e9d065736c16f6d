"""Regression: how diabetes goes on within a year, from ten numbers of a patient, beside a linear fit.

    pip install ".[examples,onednn]" && python examples/gallery/regression.py

R2 on a held-out quarter is 0.36, as that of least squares: there is little more to be had from 331 patients.

Porting: Keras's "mean_squared_error" and "mse" are names here too, R2Score is "r2", exact over all samples.
Normalization has adapt(data) as Keras's does. weight_decay is the optimizer's.
"""

import numpy as np
from bundled import planned_kib, show
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, layers, optimizer, schedule


def main(epochs: int = 60) -> dict[str, float]:
    """Train, and compare."""
    data = load_diabetes(return_X_y=True, scaled=False)
    x, x_test, y, y_test = train_test_split(*data, test_size=0.25, random_state=0)
    mean, spread = y.mean(), y.std()
    net = FeedForwardNet("mse", ["r2", "mae"], seed=0)
    net.add(layers.Normalization(input_sample_shape=(10,))).adapt(x)
    net.add(layers.Dense(32))
    net.add(layers.Activation(mode="gelu"))
    net.add(layers.Dropout(p=0.3))
    net.add(layers.Dense(1))
    steps = epochs * -(-len(x) // 32)
    net.compile(optimizer.AdamW(schedule.CosineWithWarmup(3e-3, steps), weight_decay=0.1))
    net.fit(x, (y[:, None] - mean) / spread, batch_size=32, epochs=epochs, verbose=False)
    _, found = net.evaluate(x_test, (y_test[:, None] - mean) / spread)
    linear = LinearRegression().fit(x, y).score(x_test, y_test)
    error = np.abs(np.asarray(net.predict(x_test)) * spread + mean - y_test[:, None]).mean()
    return {"R2": found["r2"], "R2 of least squares": linear, "mean error": error, "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
