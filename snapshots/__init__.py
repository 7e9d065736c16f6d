"""Snapshots: a net and its optimizer in a file, and back. One file a format, all over the same tree."""

from singa_lite.snapshots.checkpoints.callback import Checkpoint as Checkpoint
from singa_lite.snapshots.formats import load as load
from singa_lite.snapshots.formats import save as save
