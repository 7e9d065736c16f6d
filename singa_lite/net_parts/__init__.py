"""Parts of `net`: the bases of FeedForwardNet and what they ask.

Bases, each of the next: `walked_net`, `planned_net`, `compiled_net`, `batch_net`. Questions of memory:
`batch_plan`, `budget_curve`, `fit_needs`. What may be compiled or set: `compile_checks`, `mixed_precision`,
`net_settings`. Nets of shared layers: `submodel`, `family`.
"""
