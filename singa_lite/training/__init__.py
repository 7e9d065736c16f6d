"""Training: from the data of `fit` to batches, from a batch to a step, and the loop around it. It knows no net.

From the bottom: `checked` checks batches and targets, `settings` the options of `compile`, `objective` has losses and
metrics. `step_functions` and `train_step` say what a step does, `step_cache` does, records or replays it, `readers` has
what reads parameters beside a step, `trainer` trains wholly or not at all. `gradients` gives all gradients of a batch;
`evaluation` and `fit` do many batches, `progress` says how far they are.
"""
