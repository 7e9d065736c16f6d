"""Whether what a step was recorded by is still as it was: `watch` for a net's steps, `unchanged` for a bare record."""
