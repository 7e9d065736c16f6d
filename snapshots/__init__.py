"""Snapshots: a net and its optimizer in a file, and back; checkpoints of a training run. All formats hold one tree."""

from singa_lite.snapshots import maps as maps
from singa_lite.snapshots.checkpoints import checkpoint as checkpoint
from singa_lite.snapshots.checkpoints.callback import Checkpoint as Checkpoint
from singa_lite.snapshots.checkpoints.folder import latest as latest
from singa_lite.snapshots.formats import load as load
from singa_lite.snapshots.formats import save as save
