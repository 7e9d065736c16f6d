"""Passes that put other calls in the place of calls, each by a stated law."""
