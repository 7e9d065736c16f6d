"""What a processor's memory wants done: arrays over it, values in and out, steps replayed. One file a kind."""
