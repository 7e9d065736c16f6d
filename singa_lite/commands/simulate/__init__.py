"""`python -m singa_lite.parallel.simulate`: the time of a step on several ranks, without them."""
