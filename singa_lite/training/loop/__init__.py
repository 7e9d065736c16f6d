"""The loop of `fit` and `evaluate`: its arguments, its batches, means over them, progress and history."""
