"""Knowledge distillation: a small net learns from a large one's probabilities, on pictures that nobody has named.

    pip install ".[examples,onednn]" && python examples/gallery/distillation.py

A student of 12 units gets 92 % right when it learns from the teacher on all pictures, 89 % from 150 labels alone.

Porting: Keras's Distiller overrides train_step; here the teacher predicts once, and the student's targets are rows of
probabilities, which SoftmaxCrossEntropy takes as it takes class ids. Its gradient is that of KLDivergence.
"""

import numpy as np
from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer


def build(kind: str) -> FeedForwardNet:
    """A convolutional teacher, or a student with one small hidden layer."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    if kind == "teacher":
        net.add(layers.Conv2D(32, 3, input_sample_shape=(1, 8, 8)))
        net.add(layers.Activation(mode="relu"))
        net.add(layers.MaxPooling2D(2, 2, "valid"))
        net.add(layers.Dropout(p=0.3))
        net.add(layers.Flatten())
    else:
        net.add(layers.Flatten(input_sample_shape=(1, 8, 8)))
        net.add(layers.Dense(12))
        net.add(layers.Activation(mode="relu"))
    net.add(layers.Dense(10))
    net.compile(optimizer.Adam(lr=3e-3))
    return net


def softened(scores: np.ndarray, temperature: float) -> np.ndarray:
    """softmax(scores / temperature)."""
    powers = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def main(epochs: int = 20, labels: int = 150) -> dict[str, float]:
    """Train the teacher on few labels, then a student on its word, and one on the labels."""
    x, x_test, y, y_test = digits()
    teacher, student, alone = build("teacher"), build("student"), build("student")
    steps = len(x) // labels  # epochs of few samples are short
    teacher.fit(x[:labels], y[:labels], batch_size=32, epochs=steps * epochs // 2, verbose=False)
    alone.fit(x[:labels], y[:labels], batch_size=32, epochs=steps * epochs, verbose=False)
    said = softened(np.asarray(teacher.predict(x)), 2.0)
    student.fit(x, said, batch_size=32, epochs=epochs, verbose=False)
    found = {"teacher": teacher, "student": student, "student, labels alone": alone}
    results = {name: net.evaluate(x_test, y_test)[1] for name, net in found.items()}
    return {**results, "planned KiB, teacher": planned_kib(teacher), "planned KiB, student": planned_kib(student)}


if __name__ == "__main__":
    show(main())
