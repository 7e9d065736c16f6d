"""Checkpoints of a training run, and going on from one."""
