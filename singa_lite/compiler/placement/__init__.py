"""Planned and pooled memory, counted in bytes, offsets and steps; knows nothing of tensors."""
