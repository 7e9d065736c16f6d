"""Parts of `arena`: the launches that a replayed step is made of, and what it needs of its device."""
