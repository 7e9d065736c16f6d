"""What every layer has beside its own forward: names, options, tensors, placement, sharing."""
