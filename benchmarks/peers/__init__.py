"""Both sides of `compare.py`: the same nets, from the same weights, each in a process of its own."""
