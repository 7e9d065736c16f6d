"""The form of programs: operations, operands, their extents, uses, dependencies and costs."""
