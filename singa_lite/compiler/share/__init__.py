"""Passes that let values share bytes: in place, without copies, without dead calls."""
