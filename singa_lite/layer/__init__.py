"""The base class of layers, the graph of layers that a net is, and how forward and backward go through it."""

from singa_lite.layer.layer import Layer as Layer
