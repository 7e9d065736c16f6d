"""Recurrent layers, and layers that apply another one at each time."""
