"""Parts of `net`: the bases of FeedForwardNet and what they ask.

Bases, each of the next: `walked_net`, `stepping_net`, `planned_net`, `compiled_net`, `batch_net`. Questions of memory:
`batch_plan`, `budget_curve`, `fit_needs`. What may be compiled: `compiling`, which asks `compile_checks`, `how_checks`
with `mixed_precision`, `own_step_checks` and `parallel_checks`; what may be set: `net_settings`. Nets of shared layers:
`submodel`, `family`.
"""
