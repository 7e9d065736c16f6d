"""The native format, and the one reader of HDF5 files."""
