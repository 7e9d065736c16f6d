"""The only arithmetic of the project: one interface, one closed folder a kernel set."""
