"""The oneDNN library by its C functions: handles, descriptors, primitives, memories."""
