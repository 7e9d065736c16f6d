"""PyTorch's names and layouts of the tree's entries: "parameters/dense/weight" is "dense.weight", transposed.

Parameters and running statistics are "<layer>.<name>", within other layers "<layer>.<layer>.<name>". No <name> of
ours has a dot, so that a layer's may. Everything else (random state, optimizer state, what a checkpoint adds) keeps its
path, which has slashes. Two entries get one name only if `names` asks for it, or a layer "a.b" stands beside a "b"
within "a": that is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.torch_layout import Axes, AxisSlice, NameMap, Names, TorchLayout
from singa_lite.snapshots.tree import ArraySpec
from singa_lite.tensor import Shape

#: {class: {our name: PyTorch's}}, where they differ.
_SCALE = {"gamma": "weight", "beta": "bias"}
_NORMALIZATIONS = ("BatchNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization")
_NAMES = {**dict.fromkeys(_NORMALIZATIONS, _SCALE), "PReLU": {"alpha": "weight"}}
_OURS = {theirs: ours for ours, theirs in _SCALE.items()}

#: {class: {our name: (number of our axes, those of them that PyTorch has, in its order)}}. A Conv1D's weight has a
#: height of 1 here; that of a Conv2D has the layout of PyTorch's.
_AXES: dict[str, dict[str, tuple[int, Axes]]] = {
    "Dense": {"weight": (2, (1, 0))},
    "Conv1D": {"weight": (4, (0, 1, 3))},
    "Conv1DTranspose": {"weight": (4, (0, 1, 3))},
}

#: Recurrent layers call their parameters by PyTorch's names; matrices are the other way round, "weight_ih_l0_reverse".
_OF_RECURRENT = re.compile(r"weight_(ih|hh)_l\d+(_reverse)?")

#: Names of state that PyTorch has too.
_STATE = ("running_mean", "running_var")

#: What PyTorch's state_dict has beyond that: the number of batches that a BatchNorm has seen, which is not used here.
IGNORED = ("num_batches_tracked",)


def layouts(
    where: str,
    specs: Mapping[str, ArraySpec],
    layers: Attribute,
    names: Names | None,
    present: Collection[str] | None = None,
    is_partial: bool = False,
) -> dict[str, TorchLayout]:
    """The layout of each path. layers: the tree's attribute, None if unknown.

    names: {layer: module, or path: full name}; layers within that one follow it. Or a NameMap. present: the names that
    a file has, None for a file that is written; is_partial: whether it may lack some of a NameMap's. SnapshotError for
    a name that two paths would have, and for a key that is no layer and no path; TypeError for what is neither.
    """
    kinds = _kinds(specs, layers)
    if isinstance(names, NameMap):
        mapped = names.layouts(where, specs, present, is_partial)
        others = {path: _layout(path, specs, kinds, {}, present) for path in specs if path not in mapped}
        found = mapped | others
        if present is not None:  # two arrays of a net may have been one in another program
            return found
    else:
        given = _checked(where, names, {*specs, *kinds})
        found = {path: _layout(path, specs, kinds, given, present) for path in specs}
    owner: dict[tuple[str, object], str] = {}
    for path, layout in found.items():
        other = owner.setdefault((layout.name, layout.part), path)
        if other != path:
            raise SnapshotError(
                f"{where}: wanted a name for each entry, received {layout.name!r} for {other!r} and {path!r}"
            )
    return found


def _checked(where: str, names: object, known: Iterable[str]) -> dict[str, str]:
    given = _strings(names)
    strange = sorted(given.keys() - set(known))
    if strange:
        raise SnapshotError(f"{where}: names: wanted layers or paths of the tree as keys, received {strange}")
    return given


def _strings(names: object) -> dict[str, str]:
    given = {} if names is None else names
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise TypeError(f"names: wanted a mapping of strings, received {names!r:.100}")
    return dict(given)


def _layout(
    path: str,
    specs: Mapping[str, ArraySpec],
    kinds: Mapping[str, str],
    names: Mapping[str, str],
    present: Collection[str] | None,
) -> TorchLayout:
    shape, (branch, _, rest) = specs[path].shape, path.partition("/")
    layer, _, name = rest.rpartition("/")
    kind = kinds.get(layer, "")
    layout = TorchLayout(name)
    if branch == "parameters":
        layout = _of_slopes(shape) if kind == "PReLU" else TorchLayout(name, _axes(kind, name, shape))
    if path in names:
        return layout._replace(name=names[path])
    if not layer or not (branch == "parameters" or (branch == "state" and name in _STATE)):
        return TorchLayout(path)
    whole = in_one_module(path, specs, kinds, names)
    if whole is not None:
        whole = whole._replace(name=joined(_module(layer.rpartition("/")[0], names), whole.name))
        if present is None or whole.name in present:
            return whole
    module, theirs = _module(layer, names), _NAMES.get(kind, {}).get(name, name)
    if present is not None and joined(module, theirs) not in present and joined(module, name) in present:
        return TorchLayout(joined(module, name))  # gamma, beta or alpha, as other programs have them and we had
    return layout._replace(name=joined(module, theirs))


def _of_slopes(shape: Shape) -> TorchLayout:
    """Of a PReLU, which has a slope a channel in PyTorch, without an axis for each that shares it."""
    if len(shape) < 2 or any(extent > 1 for extent in shape[1:]):
        return TorchLayout("alpha")
    return TorchLayout("alpha", (0,), trailing=len(shape) - 1)


def _module(layer: str, names: Mapping[str, str]) -> str:
    """PyTorch's name of a layer; within a layer that `names` has, behind the name that this one has there."""
    outer, inner = layer, ""
    while outer not in names and "/" in outer:
        outer, _, last = outer.rpartition("/")
        inner = f"{last}.{inner}" if inner else last
    module = names.get(outer, outer)
    return joined(module, inner) if inner else module


def _axes(kind: str, name: str, shape: Shape) -> Axes | None:
    """The axes of PyTorch's array; None where they are ours, and for a shape that no layer of this class has."""
    is_recurrent = kind in ("LSTM", "GRU", "SimpleRNN") and _OF_RECURRENT.fullmatch(name)
    found = (2, (1, 0)) if is_recurrent else _AXES.get(kind, {}).get(name)
    if found is None or len(shape) != found[0]:
        return None
    axes = found[1]
    return axes if all(extent == 1 or axis in axes for axis, extent in enumerate(shape)) else None


def joined(module: str, name: str) -> str:
    """A key of a state_dict; a parameter of the outermost module, "", has no dot."""
    return f"{module}.{name}" if module else name


def _kinds(specs: Mapping[str, ArraySpec], layers: Attribute) -> dict[str, str]:
    """{layer: class}; guessed where the tree does not say, as in old snapshots."""
    try:
        return {str(layer): str(kind) for layer, kind in json.loads(str(layers))}
    except (TypeError, ValueError, RecursionError):
        return _guessed(specs)


def _guessed(specs: Mapping[str, ArraySpec]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for path, (shape, _) in specs.items():
        branch, _, rest = path.partition("/")
        layer, _, name = rest.rpartition("/")
        if branch == "parameters" and layer:
            kinds.setdefault(layer, "")
            if name == "alpha":
                kinds[layer] = "PReLU"
            elif name == "gamma":
                kinds[layer] = "BatchNormalization"  # LayerNormalization has the same names
            elif name == "weight" and len(shape) == 2:
                kinds[layer] = "Dense"
            elif _OF_RECURRENT.fullmatch(name):
                kinds[layer] = "LSTM"  # or any other of these: all lie alike
    return kinds


def guessed_layouts(where: str, specs: Mapping[str, ArraySpec], names: Names | None) -> dict[str, TorchLayout]:
    """The layouts of a file of PyTorch's, from its names and shapes alone: {our path: layout}.

    A module whose weight has one axis, or the shape of its bias, is a normalization; another weight of two axes is that
    of a Linear. A name with a slash is taken for a path; so is one without a module, and gamma and beta, since
    `layouts` gives each of them that same name. names: as for `layouts`, read backwards.
    """
    given = {theirs: ours for ours, theirs in _strings(names).items()}
    found: dict[str, TorchLayout] = {}
    for name, (shape, _) in specs.items():
        module, _, last = name.rpartition(".")
        if last in IGNORED:
            continue
        path = given.get(name) or _guessed_path(specs, name, given.get(module, module))
        if path in found:
            raise SnapshotError(f"{where}: entry {path!r}: would be both {found[path].name!r} and {name!r}")
        is_weight = path != name and path.startswith("parameters/") and path.endswith("/weight")
        is_weight |= path.startswith("parameters/") and _OF_RECURRENT.fullmatch(last) is not None
        found[path] = TorchLayout(name, _axes("Dense", "weight", shape) if is_weight else None)
    return found


def _guessed_path(specs: Mapping[str, ArraySpec], name: str, layer: str) -> str:
    module, _, last = name.rpartition(".")
    if "/" in name or not layer or not last or last in _SCALE:
        return name
    if last in _STATE:
        return f"state/{layer}/{last}"
    return f"parameters/{layer}/{_OURS.get(last, last) if _is_normalization(specs, module) else last}"


def _is_normalization(specs: Mapping[str, ArraySpec], module: str) -> bool:
    weight, bias = (specs.get(joined(module, name)) for name in ("weight", "bias"))
    return weight is not None and (len(weight.shape) == 1 or (bias is not None and bias.shape == weight.shape))


#: The products of a MultiHeadAttention that PyTorch has side by side, in its order.
_PACKED = ("query", "key", "value")


def in_one_module(
    path: str, specs: Mapping[str, ArraySpec], kinds: Mapping[str, str], named: Collection[str]
) -> TorchLayout | None:
    """The layout of an array in the module of the layer that holds its layer; its name has no module yet.

    None where PyTorch has no such module. specs: of all arrays; kinds: {layer: class}; named: the layers and paths
    that a user has names for: a name for a layer within says that it is a module of its own.
    """
    branch, _, rest = path.partition("/")
    holder, _, inner = rest.rpartition("/")[0].rpartition("/")
    own = [each for each in named if each.removeprefix("parameters/").startswith(f"{holder}/")]
    if branch != "parameters" or not holder or own:
        return None
    name = path.rpartition("/")[2]
    if kinds.get(holder) == "MultiHeadAttention":
        return _of_attention(f"parameters/{holder}", inner, name, specs)
    if kinds.get(holder) == "Bidirectional" and f"parameters/{holder}/{inner}/weight_ih_l1" not in specs:
        axes = (1, 0) if len(specs[path].shape) == 2 else None
        return TorchLayout(f"{name}_reverse" if inner == "backward" else name, axes)
    return None


def _of_attention(holder: str, inner: str, name: str, specs: Mapping[str, ArraySpec]) -> TorchLayout | None:
    """Of nn.MultiheadAttention, whose heads together are as wide as its queries."""
    paths = [f"{holder}/{each}/weight" for each in (*_PACKED, "output")]
    shapes: list[Shape] = [specs[path].shape for path in paths if path in specs]
    width = shapes[0][-1] if shapes and shapes[0] else 0
    if len(shapes) != len(paths) or {shapes[0], shapes[-1]} != {(width, width)}:
        return None
    if any(len(shape) != 2 or shape[1] != width for shape in shapes):
        return None
    axes = (1, 0) if name == "weight" else None
    if inner not in _PACKED:
        return TorchLayout(f"out_proj.{name}", axes)
    if name == "weight" and {shape[0] for shape in shapes} != {width}:  # a memory of another width
        return TorchLayout(f"{inner[0]}_proj_weight", axes)
    begin = _PACKED.index(inner) * width
    return TorchLayout(f"in_proj_{name}", axes, AxisSlice(0, begin, begin + width, len(_PACKED) * width))
