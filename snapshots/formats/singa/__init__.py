"""Apache SINGA's own snapshots, which are only read."""
