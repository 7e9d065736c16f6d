"""Weights in the layout of Keras 3."""
