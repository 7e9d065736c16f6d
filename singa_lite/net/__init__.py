"""FeedForwardNet: compiled, trained, asked, saved and loaded.

`compile/` checks the options of `compile`. `memory_questions`, `batch_memory` and `largest_batch` answer
questions of memory; `generation/` writes text. `submodel` and `shared_layers` are for nets that have layers in common.
"""

from singa_lite.net.feed_forward_net import FeedForwardNet as FeedForwardNet
