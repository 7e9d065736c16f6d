"""Tuning: measures the ways in which kernels of a set can do a net's calls, and keeps the fastest for runs to come."""
