"""Processes: asks for worker processes, where threads would hold each other up."""

from __future__ import annotations

from singa_lite.common.checks import integer


class Processes:
    """`fit(workers=data.Processes(2))`: so many processes transform samples, instead of threads.

    For transforms written in Python, which hold the interpreter's lock: threads would slow the training step down. The
    transform is pickled, without the data, of which samples come batch by batch. So it is a function or an object of a
    module, and the script's own part stands under `if __name__ == "__main__":`, as each process imports the script.
    """

    def __init__(self, count: int) -> None:
        self.count = integer("Processes count", count, 1)

    def __repr__(self) -> str:
        return f"Processes({self.count})"
