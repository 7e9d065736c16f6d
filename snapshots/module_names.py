"""The names that layers have as modules of another program: paths with dots, a user's, or those of transformers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import maps
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.names import places
from singa_lite.snapshots.torch_layout import NameMap
from singa_lite.training.trained_net import TrainedNet


def modules_of(where: str, net: TrainedNet, targets: Collection[str], names: object) -> dict[str, str]:
    """{path: module} of those targets that are modules by themselves. names: {layer: module}, which layers within it
    follow, or a NameMap; None: transformers' of a net of `models.language_model`, else paths with dots.

    TypeError for other names; SnapshotError for keys that are no layers, and for two layers of one module.
    """
    language = language_of(net)
    if names is None and language is not None and language.architecture == "gpt2":
        names = maps.gpt2(net)
    if isinstance(names, NameMap):
        found = {
            path.removeprefix("parameters/"): layouts[0].name
            for path, layouts in names.places.items()
            if layouts[0].part is None
        }
    elif names is None and language is not None:
        found = {path: place.hugging_face for path, place in places(language)}
    else:
        given = _checked(where, net, names)
        found = {f"{path}/weight": f"{_by_prefix(path, given)}.weight" for path in targets}
    modules = {path: found[f"{path}/weight"].removesuffix(".weight") for path in targets if f"{path}/weight" in found}
    owners: dict[str, str] = {}
    for path, module in modules.items():
        other = owners.setdefault(module, path)
        if other != path:
            text = f"wanted a module for each layer, received {module!r} for {other!r} and {path!r}"
            raise SnapshotError(f"{where}: names: {text}")
    return modules


def language_of(net: TrainedNet) -> LanguageConfig | None:
    """The configuration of a net of `models.language_model`; None for others."""
    found = getattr(net, "language", None)
    return found if isinstance(found, LanguageConfig) else None


def _checked(where: str, net: TrainedNet, names: object) -> Mapping[str, str]:
    given = {} if names is None else names
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise TypeError(f"names: wanted a mapping of strings, received {names!r:.100}")
    strange = sorted(given.keys() - net.all_layers().keys())
    if strange:
        raise SnapshotError(f"{where}: names: wanted layers of the net as keys, received {strange}")
    return given


def _by_prefix(path: str, names: Mapping[str, str]) -> str:
    outer, inner = path, ""
    while outer not in names and "/" in outer:
        outer, _, last = outer.rpartition("/")
        inner = f".{last}{inner}"
    return f"{names.get(outer, outer)}{inner}"
