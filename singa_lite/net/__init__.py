"""FeedForwardNet: compiled, trained, asked, saved and loaded.

`compile_checks` and `attribute_checks` check options of `compile` with the net. `memory_questions`, `batch_memory` and
`largest_batch` answer questions of memory; `generation/` writes text. `submodel` is for nets that share layers.
"""

from singa_lite.net.feed_forward_net import FeedForwardNet as FeedForwardNet
