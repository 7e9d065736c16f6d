"""Pickles of NumPy arrays by name, read without unpickling."""
