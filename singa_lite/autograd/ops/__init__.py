"""Differentiable operations by family: shape rule, forward call, derivative and gradient calls."""
