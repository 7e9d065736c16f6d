"""Batches on their way to a step: readers, shuffling, shares of ranks, prefetching, worker processes."""
