"""Commands of `python -m singa_lite` that have no room of their own, and how they find a net by its name."""
