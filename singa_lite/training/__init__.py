"""Training: from the data of `fit` to batches, from a batch to a step, and the loop around it.

From the bottom: `checked` checks batches and targets, `settings` the options of `compile`, `objective` has losses and
metrics. `step_functions` and `train_step` say what a step does, `step_cache` does, records or replays it, `readers` has
what reads parameters beside a step, `step_runner` trains wholly or not at all. `trainer` has the optimizer, losses and
options of one net, which `compile_checks` checks; `trained_net` has layers and their trainer. `by_hand` is for loops of
one's own; `evaluation` and `fit` do many batches, `progress` says how far they are.
"""
