"""Adapters of low rank in a folder, as the package peft has them: adapter_config.json, adapter_model.safetensors."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import sqrt

import numpy as np

from singa_lite.common import checks
from singa_lite.common.atomic import write_anew
from singa_lite.common.errors import GraphError, SnapshotError
from singa_lite.common.notice import warn
from singa_lite.layer.layer import Layer
from singa_lite.layer.lora import LORA_NAMES, A, Lora, checked_lora
from singa_lite.snapshots import formats, maps, net_tree, stored_parameters
from singa_lite.snapshots.adapter_base import BASE, base_digest
from singa_lite.snapshots.formats import Path
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.names import places
from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.readers import raw, safetensors
from singa_lite.snapshots.readers.raw import Unchecked
from singa_lite.snapshots.torch_layout import NameMap, TorchLayout
from singa_lite.snapshots.tree import VERSION, ArraySpec, LazyArray, Tree
from singa_lite.tensor import Shape
from singa_lite.training.trained_net import TrainedNet

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
#: The most bytes of a configuration, which names each module at most.
_MOST = 1 << 20
_THEIRS = dict(zip(LORA_NAMES, ("lora_A", "lora_B"), strict=True))
_NAME = re.compile(r"base_model\.model\.(.+)\.(lora_A|lora_B)\.weight", re.DOTALL)
#: What peft can do beyond this, with the values that say that it does not.
_REFUSED: Mapping[str, tuple[object, ...]] = {
    "bias": ("none",),
    **dict.fromkeys(("use_dora", "lora_bias"), (False, None)),
    **dict.fromkeys(("modules_to_save", "layer_replication", "trainable_token_indices"), (None, [])),
}


def save(net: TrainedNet, folder: Path, names: object, base: str | None) -> None:
    """Write the net's adapters. GraphError where there are none, SnapshotError for what cannot be written."""
    layers = _takers(net)
    adapters = {path: layer.lora for path, layer in layers.items() if layer.lora is not None}
    if not adapters:
        raise GraphError("save_adapter: wanted a net with adapters, received one without")
    where = checks.path("save_adapter", folder)
    if base is not None and not isinstance(base, str):
        raise TypeError(f"save_adapter: wanted base to be the name of the base model, received {base!r:.100}")
    net.check_usable()
    modules = _modules(where, net, layers, names)
    for path in sorted(adapters.keys() - modules.keys()):
        raise SnapshotError(
            f"{where}: wanted adapters of layers that are modules of their own there, received {path!r}"
        )
    tensors, arrays = net_tree.of_layers(net), dict[str, LazyArray]()
    for path in (f"parameters/{layer}/{name}" for layer in adapters for name in LORA_NAMES):
        arrays[path] = stored_parameters.widened(stored_parameters.lazy(tensors[path]))
    attributes: dict[str, Attribute] = {"format": "singa_lite", "version": VERSION, "entries": len(arrays)}
    contents = Tree(arrays, attributes | {BASE: base_digest(net)})
    try:
        os.makedirs(where, exist_ok=True)
    except OSError as error:
        raise SnapshotError(f"{where}: wanted a folder, or a place for one: {error}") from error
    formats.write(contents, os.path.join(where, WEIGHTS), names=_places(net, contents.specs, modules))
    text = json.dumps(_config(net, adapters, modules, base), indent=2)
    write_anew(os.path.join(where, CONFIG), f"{text}\n")


def load(net: TrainedNet, folder: Path, names: object, adapt: Callable[[Mapping[str, Lora]], object]) -> None:
    """Read a folder into the net's adapters. adapt: gives the net adapters by path, where it has none.

    SnapshotError for what does not fit; nothing is changed then.
    """
    where = checks.path("load_adapter", folder)
    net.check_usable()
    config, file = _read_config(os.path.join(where, CONFIG)), os.path.join(where, WEIGHTS)
    layers, shapes = _takers(net), _shapes(file)
    modules = _modules(where, net, layers, names)
    paths = {module: path for path, module in modules.items()}
    strange = sorted(shapes.keys() - paths.keys())
    if strange or not shapes:
        raise SnapshotError(
            f"{file}: wanted adapters of modules that the net has as layers which take one, {sorted(paths)[:8]}, "
            f"received {strange[:8]}; names= says what layers are called in the file"
        )
    adapters = {paths[module]: _lora(where, config, module, shape) for module, shape in shapes.items()}
    _check_same(where, net, adapters)
    specs = {}
    for path, lora in adapters.items():
        form = layers[path].lora_form(lora.rank)
        for name, shape in zip(LORA_NAMES, form[:2] if form else (), strict=True):
            specs[f"parameters/{path}/{name}"] = ArraySpec(shape, net.dtype)
    blank = {path: LazyArray(*spec, partial(np.empty, 0)) for path, spec in specs.items()}
    with formats.opened(file, Tree(blank), names=_places(net, specs, modules)) as found:
        net_tree.check_entries(found, specs, sorted(found.arrays.keys() - specs.keys()))
        arrays = {path: found.read(path) for path in specs}
        base = found.attributes.get(BASE)
    if all(layer.lora is None for layer in layers.values()):
        adapt(adapters)
    net.trainer.begin_restore()
    tensors = net_tree.of_layers(net)
    for path, array in arrays.items():
        tensors[path].copy_from_numpy(array)
    net.trainer.discard_step()
    if base is not None and base != base_digest(net):
        warn(f"{where}: the adapters were trained over another base, with SHA-256 {base!s:.64}: results may be worse")


def _check_same(where: str, net: TrainedNet, wanted: Mapping[str, Lora]) -> None:
    """SnapshotError where the net has adapters of other layers, ranks or factors."""
    there = {path: layer.lora for path, layer in _takers(net).items() if layer.lora is not None}
    for path in sorted(there.keys() | wanted.keys()) if there else ():
        here, found = there.get(path), wanted.get(path)
        if here is None or found is None or here[:2] != found[:2]:
            raise SnapshotError(f"{where}: layer {path!r}: wanted the adapter of the net, {here}, received {found}")


# ---- names of modules


def _takers(net: TrainedNet) -> dict[str, Layer]:
    """The layers that have an adapter or may have one, and use their own parameters, by path."""
    layers = net.all_layers().items()
    return {path: layer for path, layer in layers if layer.shared_with is None and layer.lora_form(1) is not None}


def _modules(where: str, net: TrainedNet, targets: Collection[str], names: object) -> dict[str, str]:
    """{path: module} of those targets that are modules by themselves. names: {layer: module}, which layers within it
    follow, or a NameMap; None: transformers' of a net of `models.language_model`, else paths with dots.

    TypeError for other names; SnapshotError for keys that are no layers, and for two layers of one module.
    """
    language = _language(net)
    if names is None and language is not None:
        theirs = {f"parameters/{path}": (TorchLayout(place.hugging_face),) for path, place in places(language)}
        names = maps.gpt2(net) if language.architecture == "gpt2" else NameMap(theirs)
    if isinstance(names, NameMap):
        whole = {path: layouts[0].name for path, layouts in names.places.items() if layouts[0].part is None}
        weights = {path: whole[f"parameters/{path}/weight"] for path in targets if f"parameters/{path}/weight" in whole}
        modules = {path: weight.removesuffix(".weight") for path, weight in weights.items()}
    else:
        given = _checked(where, net, names)
        modules = {path: _by_prefix(path, given) for path in targets}
    owners: dict[str, str] = {}
    for path, module in modules.items():
        other = owners.setdefault(module, path)
        if other != path:
            text = f"wanted a module for each layer, received {module!r} for {other!r} and {path!r}"
            raise SnapshotError(f"{where}: names: {text}")
    return modules


def _language(net: TrainedNet) -> LanguageConfig | None:
    """The configuration of a net of `models.language_model`; None for any other."""
    found = getattr(net, "language", None)
    return found if isinstance(found, LanguageConfig) else None


def _checked(where: str, net: TrainedNet, names: object) -> Mapping[str, str]:
    given = {} if names is None else names
    if not isinstance(given, Mapping) or not all(isinstance(t, str) and t for pair in given.items() for t in pair):
        raise TypeError(f"{where}: names: wanted {{layer: module}} of strings, or a NameMap, received {names!r:.100}")
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


def _places(net: TrainedNet, specs: Mapping[str, ArraySpec], modules: Mapping[str, str]) -> NameMap:
    """Where arrays lie in the file: matrices are transposed, those of sequences have no height. modules: by layer."""
    places, layers = {}, net.all_layers()
    for path, (shape, _) in specs.items():
        layer, _, name = path.partition("/")[2].rpartition("/")
        of_images = None if len(layers[layer].output_sample_shapes[0]) == 3 else (0, 1, 3)
        axes = (1, 0) if len(shape) == 2 else of_images
        places[path] = (TorchLayout(f"base_model.model.{modules[layer]}.{_THEIRS[name]}.weight", axes),)
    return NameMap(places)


# ---- the two files


def _config(
    net: TrainedNet, adapters: Mapping[str, Lora], modules: Mapping[str, str], base: str | None
) -> dict[str, object]:
    """The configuration for peft. Ranks and factors that few layers have are patterns."""
    ((common, _),) = Counter(adapters.values()).most_common(1)
    ends = {module.rpartition(".")[2] for path, module in modules.items() if path in adapters}
    others = {module.rpartition(".")[2] for path, module in modules.items() if path not in adapters}
    whole = [modules[path] for path in adapters]
    return {
        "peft_type": "LORA",
        "task_type": None if _language(net) is None else "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": common.rank,
        "lora_alpha": common.alpha,
        "lora_dropout": common.dropout,
        "target_modules": sorted(whole if ends & others else ends),
        "rank_pattern": {modules[path]: lora.rank for path, lora in adapters.items() if lora.rank != common.rank},
        "alpha_pattern": {modules[path]: lora.alpha for path, lora in adapters.items() if lora.alpha != common.alpha},
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _shapes(file: str) -> dict[str, Shape]:
    """{module: the shape of its lora_A}. SnapshotError for an entry that is none of an adapter's."""
    with raw.reading(file) as opened:
        entries = safetensors.read(opened).entries
    found: dict[str, Shape] = {}
    for name, entry in entries.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise SnapshotError(
                f"{file}: wanted entries base_model.model.<module>.lora_A.weight, received {name!r:.100}"
            )
        if match[2] == _THEIRS[A]:
            found[match[1]] = entry.shape
    return found


def _read_config(path: str) -> dict[str, Unchecked]:
    """The configuration. SnapshotError for what is no LoRA, and for what of peft's is not done here."""
    with raw.reading(path) as file:
        if file.size > _MOST:
            raise SnapshotError(f"{path}: wanted at most {_MOST} bytes, received {file.size}")
        config: dict[str, Unchecked] = raw.load_json(file, "the configuration", file.read("it", 0, file.size))
    if config.get("peft_type") != "LORA":
        raise SnapshotError(f"{path}: wanted peft_type 'LORA', received {config.get('peft_type')!r:.100}")
    for name, values in _REFUSED.items():
        if name in config and config[name] not in values:
            raise SnapshotError(f"{path}: {name}: wanted {values[0]!r}, received {config[name]!r:.100}")
    return config


def _lora(where: str, config: Mapping[str, Unchecked], module: str, shape: Shape) -> Lora:
    """The options of a module's adapter, whose rank is that of its lora_A, the first extent."""
    of_module = f"{where}: {module}"
    rank = _by_pattern(config, "r", "rank_pattern", module)
    alpha = _by_pattern(config, "lora_alpha", "alpha_pattern", module)
    try:
        lora = checked_lora(of_module, rank, alpha, config.get("lora_dropout", 0.0))
    except ValueError as error:
        raise SnapshotError(str(error)) from None
    if shape[:1] != (lora.rank,):
        raise SnapshotError(f"{of_module}: wanted a lora_A of {lora.rank} rows, as {CONFIG} says, received {shape}")
    return lora._replace(alpha=lora.alpha * sqrt(lora.rank)) if config.get("use_rslora") is True else lora


def _by_pattern(config: Mapping[str, Unchecked], name: str, pattern: str, module: str) -> object:
    """What the configuration says of a module: by its name, or the end of it, else of all."""
    patterns = config.get(pattern) or {}
    if not isinstance(patterns, dict):
        raise SnapshotError(f"{CONFIG}: {pattern}: wanted values by module, received {patterns!r:.100}")
    found = (patterns[key] for key in patterns if module == key or module.endswith(f".{key}"))
    value: object = next(found, config.get(name))
    return value
