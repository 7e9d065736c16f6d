"""Nets of published forms, whose weights load from the files that others share (`snapshots.maps`)."""

from .bert import bert as bert
from .gpt2 import gpt2 as gpt2
