"""The names that layers have as modules of another program: paths with dots, a user's, or transformers'."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.torch_layout import NameMap

#: Of the layers of `models.language_model`, in transformers' classes for Llama, Mistral, Qwen2 and Qwen3.
_BLOCK = re.compile(r"block(\d+)/(.+)")
_IN_BLOCK = {
    **{f"attention/{ours}": f"self_attn.{ours[0]}_proj" for ours in ("query", "key", "value", "output")},
    **{"hidden/gate": "mlp.gate_proj", "hidden/value": "mlp.up_proj", "output": "mlp.down_proj"},
}
_HEAD = {"head": "lm_head"}


def is_language_model(paths: Collection[str]) -> bool:
    """Whether layers of these paths are those of `models.language_model` with SwiGLU."""
    return {"tokens", "block0/hidden/gate", "block0/attention/query"} <= set(paths)


def modules_of(where: str, paths: Collection[str], targets: Collection[str], names: object) -> dict[str, str]:
    """{path: module} of the targets. paths: of all layers; names: {layer: module}, which layers within it follow, or a
    NameMap; None: by default.

    TypeError for other names; SnapshotError for keys that are no layers, and for two layers of one module.
    """
    if isinstance(names, NameMap):
        found = {path: _mapped(where, path, names) for path in targets}
    elif names is None and is_language_model(paths):
        found = {path: _of_language_model(path) for path in targets}
    else:
        given = {} if names is None else names
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
            raise TypeError(f"names: wanted a mapping of strings, received {names!r:.100}")
        strange = sorted(given.keys() - set(paths))
        if strange:
            raise SnapshotError(f"{where}: names: wanted layers of the net as keys, received {strange}")
        found = {path: _by_prefix(path, given) for path in targets}
    owners: dict[str, str] = {}
    for path, module in found.items():
        other = owners.setdefault(module, path)
        if other != path:
            raise SnapshotError(
                f"{where}: names: wanted a module for each layer, received {module!r} for {other!r}, {path!r}"
            )
    return found


def _mapped(where: str, path: str, names: NameMap) -> str:
    layouts = names.places.get(f"parameters/{path}/weight", ())
    for layout in layouts[:1]:
        if layout.part is None and layout.name.endswith(".weight"):
            return layout.name.removesuffix(".weight")
    raise SnapshotError(
        f"{where}: wanted a module of its own for layer {path!r}, received "
        f"{f'a part of {layouts[0].name!r}' if layouts else 'none'}; leave it out of the targets"
    )


def _of_language_model(path: str) -> str:
    block = _BLOCK.fullmatch(path)
    inner = None if block is None else _IN_BLOCK.get(block[2])
    return (
        _HEAD.get(path, path.replace("/", "."))
        if block is None or inner is None
        else (f"model.layers.{block[1]}.{inner}")
    )


def _by_prefix(path: str, names: Mapping[str, str]) -> str:
    outer, inner = path, ""
    while outer not in names and "/" in outer:
        outer, _, last = outer.rpartition("/")
        inner = f".{last}{inner}"
    return f"{names.get(outer, outer)}{inner}"
