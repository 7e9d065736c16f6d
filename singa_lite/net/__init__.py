"""FeedForwardNet: compiled, trained, evaluated, saved and loaded.

Its methods stand in `feed_forward_net`, `step_methods`, `plan_methods` and `file_methods`. `batch_steps` does one
batch, `memory_planner` plans by `batch_memory` and `largest_batch`; `generation/` writes text. `submodel` is for nets
that share layers.
"""

from singa_lite.net.feed_forward_net import FeedForwardNet as FeedForwardNet
