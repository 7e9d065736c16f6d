"""What the scripts of the gallery share: scikit-learn's bundled digits, and a line for each result."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet


def digits(test_size: float = 0.2) -> list[np.ndarray]:
    """[x, x_test, y, y_test]: pictures (n, 1, 8, 8) float32 from 0 to 1, and int64 digits (n,)."""
    pictures, labels = load_digits(return_X_y=True)
    x = (pictures / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return train_test_split(x, labels, test_size=test_size, stratify=labels, random_state=0)


def planned_kib(net: FeedForwardNet, batch_size: int = 32) -> float:
    """What a training step takes in all by its plan: parameters, state, batch, outputs and arena, in KiB."""
    return net.plan_batch(batch_size).total_bytes / 1024


def show(results: dict[str, float]) -> None:
    """Print a line for each result."""
    for name, value in results.items():
        print(f"{name}: {value:.4g}")
