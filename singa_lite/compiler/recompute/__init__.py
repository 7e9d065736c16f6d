"""Passes that keep a limit of bytes: values computed again, or moved to the host."""
