"""Writes files whole or not at all; all formats with a writer use it."""
