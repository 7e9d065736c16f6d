"""Drawings of the manual: each module has a function `drawing` that returns one of `svg.Drawing`."""
