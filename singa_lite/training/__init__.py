"""Training: from the data of `fit` to batches, from a batch to a step, and the loop around it. It knows no net.

From the bottom: `batch` and `samples` check what users give, `objective` has losses and metrics, `step` does a batch,
`evaluation` and `fit` do many, `progress` says how far they are, and `prefetch` takes batches ahead.
"""
