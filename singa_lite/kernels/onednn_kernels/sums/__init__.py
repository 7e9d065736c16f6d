"""Sums and moments along rows, columns and channels."""
