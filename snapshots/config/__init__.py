"""Configurations: a net written down as plain values, of which the same net can be made without its script."""

from singa_lite.snapshots.config.net_config import config_of as config_of
from singa_lite.snapshots.config.net_config import net_of as net_of
