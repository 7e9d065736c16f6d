"""Passes that change the order of calls and the width of their workspaces."""
