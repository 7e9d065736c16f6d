"""Parts of `layer`: a layer's names, options and tensors, how a forward goes through layers, and their past."""
