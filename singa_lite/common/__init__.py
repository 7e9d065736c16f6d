"""Helpers that all rooms share: types and checks of plain values, arrays, threads, the machine. It knows no tensor."""
