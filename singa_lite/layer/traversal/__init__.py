"""Ways over the layers of a net: their order, the walk back, and which of them are frozen or keep the time axis.

Parts of `run` and `layer_graph`.
"""
