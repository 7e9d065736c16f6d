"""Training: from the data of `fit` to batches, from a batch to a step, and the loop around it. It knows no net.

From the bottom: `batch`, `samples` and `checked` check what users give, `objective` has losses and metrics,
`step_functions` says what a step does, `step` does or replays it, `trainer` trains wholly or not at all, `readers` has
what reads beside a step, `evaluation` and `fit` do many, `progress` says how far they are, `prefetch` takes batches
ahead.
"""
