"""Convolutions, and layers that change the borders and the size of images."""
