"""Snapshots: a net and its optimizer in a file, and back. One file a format, all over the same tree."""

from singa_lite.snapshots.hdf5 import load as load
from singa_lite.snapshots.hdf5 import save as save
