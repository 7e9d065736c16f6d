"""Paired: samples with their targets, as one object."""

from __future__ import annotations


class Paired:
    """Samples that have their targets with them: `net.fit(pair)`, `net.evaluate(pair)`, `validation_data=pair`.

    x: samples, or {input layer: samples}; y: as many targets, or {output layer: targets}; each of any kind that `fit`
    takes, such as a set on disk that is read by `[]`. len() is the number of samples.
    """

    def __init__(self, x: object, y: object, count: int) -> None:
        self.x, self.y = x, y
        self._count = count

    def __len__(self) -> int:
        return self._count
