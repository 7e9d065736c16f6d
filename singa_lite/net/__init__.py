"""FeedForwardNet: compiled, trained, asked, saved and loaded.

`compile_checks` and `attribute_checks` check options of `compile` with the net. `memory_planner`, `budget_curve` and
`fit_memory` answer questions of memory; `generation/` writes text. `submodel` is for nets that have layers in common.
"""

from singa_lite.net.feed_forward_net import FeedForwardNet as FeedForwardNet
