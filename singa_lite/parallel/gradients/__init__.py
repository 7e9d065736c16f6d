"""Gradients and parameters of several ranks: buckets, sums, shards."""
