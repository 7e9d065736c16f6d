"""Names of layers, and of the parameters and state in them, that every snapshot format can hold.

A snapshot's paths are "parameters/<layer>/<name>" and the like, so no name may have a slash in it. PyTorch's are
"<layer>.<name>", where the last dot must be the one between the two. HDF5 leaves out a name "." and ends a name at a
NUL. A zip archive has room for 65,535 bytes of a whole path, in which a character may take three.
"""

from __future__ import annotations

#: Bytes in UTF-8.
LONGEST = 1000


def problem_of_layer(name: object) -> str | None:
    """What is wanted of a layer's name that this one is not; None if it will do."""
    if not isinstance(name, str) or not name or "/" in name:
        return "a non-empty string without '/'"
    if name == "." or "\0" in name:
        return "a string that every snapshot format can hold, which is not '.' and has no NUL in it"
    return _problem_of_bytes(name)


def problem_of_tensor(name: object) -> str | None:
    """What is wanted of the name of a layer's parameter or state that this one is not; None if it will do."""
    if not isinstance(name, str) or not name or any(char in name for char in "/.\0"):
        return "a non-empty string without '/', '.' and NUL"
    return _problem_of_bytes(name)


def _problem_of_bytes(name: str) -> str | None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # Python's strings may hold halves of characters
        return "Unicode text"
    return None if len(encoded) <= LONGEST else f"at most {LONGEST} bytes"
