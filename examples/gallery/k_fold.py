"""Cross-validation in five folds by scikit-learn, a net for each.

    pip install ".[examples,onednn]" && python examples/gallery/k_fold.py

The mean accuracy over the folds is 95 % or more.

Porting: a new net each fold, as in Keras, but no clear_session(): a net's memory goes when the net does. Or leave the
loop to scikit-learn: cross_val_score(NetClassifier(), x, y).
"""

import numpy as np
from bundled import digits, perceptron, planned_kib, show
from sklearn.model_selection import StratifiedKFold

from singa_lite import optimizer


def main(epochs: int = 10, folds: int = 5) -> dict[str, float]:
    """Train and evaluate on each fold."""
    x, _, y, _ = digits()
    found = []
    for train, held in StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y):
        net = perceptron(64)
        net.compile(optimizer.Adam(lr=3e-3))
        net.fit(x[train], y[train], batch_size=32, epochs=epochs, verbose=False)
        found.append(net.evaluate(x[held], y[held])[1])
    return {"accuracy": np.mean(found), "spread": np.std(found), "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
