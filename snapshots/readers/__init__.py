"""Readers of files that nobody vouches for: HDF5, zip and npy, safetensors, pickle, protobuf and JSON.

They give names, shapes, dtypes and arrays as they lie in a file. What these mean to a net is the formats' knowledge:
this folder imports nothing of the project but its errors, and can be read alone.
"""
