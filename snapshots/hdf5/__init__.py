"""The native format."""
