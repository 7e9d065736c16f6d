"""Readers of files that may be damaged or hostile: HDF5, zip and npy, safetensors, pickle, protobuf and JSON.

They give names, shapes, dtypes and arrays as a file has them. What these mean to a net is known in `formats/` alone:
this folder imports nothing of the project but its errors and two names of types, and can be read alone.
"""
