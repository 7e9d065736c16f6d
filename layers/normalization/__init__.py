"""Normalisation layers."""

from singa_lite.layers.normalization.normalization import Normalization as Normalization
