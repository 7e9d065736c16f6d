"""Passes for steps of several ranks: sums in pieces, beside the computation."""
