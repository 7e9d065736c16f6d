"""Parts of `layer`: a layer's names, options, tensors, traits and placement, how a forward goes through layers, and
their past.
"""
