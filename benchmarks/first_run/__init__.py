"""The items of `gpu_first.py`, the process that runs them, and the process that watches it."""
