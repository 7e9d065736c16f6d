"""Our reader of HDF5: it is finished, and takes what h5py writes unless told otherwise."""
