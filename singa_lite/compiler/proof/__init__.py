"""Proofs that a planned program computes what was recorded."""
