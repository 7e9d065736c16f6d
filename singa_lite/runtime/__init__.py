"""Runtimes: arrays over a processor's memory, values in and out, steps replayed. One file a kind."""
