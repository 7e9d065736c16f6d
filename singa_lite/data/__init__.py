"""Data sets: files read into NumPy arrays, and sequences of unequal lengths in batches of equal ones."""

from singa_lite.data.bucketed import Bucketed as Bucketed
from singa_lite.data.bucketed import bucketed as bucketed
from singa_lite.data.files import load_cifar10 as load_cifar10
from singa_lite.data.files import load_hdf5 as load_hdf5
from singa_lite.data.files import load_idx as load_idx
from singa_lite.data.files import load_npz as load_npz
