"""AdapterMethods: adapters of low rank in a net, what trains beside them, and the files that hold them alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike

from singa_lite.common.checks import goes_through
from singa_lite.common.errors import GraphError
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.layer import Layer
from singa_lite.layer.lora import (
    LORA_NAMES,
    Lora,
    checked_lora,
    is_adapter,
    merge,
    restore_training_state,
    training_state,
)
from singa_lite.training.trained_net import TrainedNet

#: What `targets` may be beside names of layers.
ALL_LINEAR, ALL = "all-linear", "all"
Targets = str | Layer | Collection[str | Layer]


class AdapterMethods(TrainedNet):
    """Methods of `FeedForwardNet` about adapters (LoRA); `snapshots.adapters` reads and writes their files."""

    @explains_keywords()
    def add_lora(
        self, rank: int = 8, alpha: float = 16.0, targets: Targets = ALL_LINEAR, dropout: float = 0.0
    ) -> list[str]:
        """Puts an adapter beside the weight of each target layer and freezes all else; returns the layers' paths.

        The layer then gives x @ weight + bias + alpha / rank * dropout(x) @ lora_a @ lora_b, and its parameters
        "<layer>/lora_a" (features, rank) and "<layer>/lora_b" (rank, num_output) alone train. lora_b is zero at first,
        so the net computes what it did. A convolution has a lora_a (rank, channels, height, width), which slides as its
        kernels do, and a lora_b (nb_kernels, rank, 1, 1) (Hu and others, arXiv 2106.09685; as the package peft).

        targets: "all-linear", each Dense but the output of a net that takes ids; "all", also convolutions without
        groups; or layers, paths, or ends of paths, such as ["query", "value"]. dropout: the share of x that lora_a does
        not see in training. Layers that do not train run as with `trainable = False`; an optimizer of `compile` drops
        its state of them. ValueError for options out of range, such as a rank that no target's weight has, GraphError
        for a target that is no layer of the net, or takes no adapter, and for a net that has adapters.

        >>> net = Sequential([layers.Dense("hidden", 4, input_shape=(5,)), layers.Dense("scores", 3)])
        >>> net.add_lora(rank=2, targets="hidden")
        ['hidden']
        >>> net.compile("adam", "mse")
        >>> {name: value.shape for name, value in net.parameters().items() if value.stores_grad}
        {'hidden/lora_a': (5, 2), 'hidden/lora_b': (2, 4)}
        """
        lora = checked_lora("add_lora", rank, alpha, dropout)
        adapted = [layer.path for layer in self.adapted_layers()]
        if adapted:
            raise GraphError(f"add_lora: wanted a net without adapters, received one with some beside {adapted[:8]}")
        chosen = self._targets(targets)
        most, path = max((form.full_rank, layer.path) for layer in chosen if (form := layer.lora_form(1)) is not None)
        if lora.rank > most:
            wanted = f"rank to be at most {most}, the lower extent of the weight of layer {path!r}"
            raise ValueError(f"add_lora: wanted {wanted}, received {lora.rank}")
        self.adapt({layer.path: lora for layer in chosen})
        return [layer.path for layer in self.adapted_layers()]

    def family(self) -> list[TrainedNet]:
        """Returns this net, and after it those that have layers of it, see `submodel`."""
        return [self]

    def adapted_layers(self) -> list[Layer]:
        """Returns the layers that have an adapter, in topological order."""
        return [layer for layer in self.all_layers().values() if layer.lora is not None]

    def adapt(self, adapters: Mapping[str, Lora]) -> None:
        """Freezes the net and puts adapters beside the weights of these layers, by path. If one fails, none is there.

        Layers that share their parameters share the adapter.
        """
        found, outer = self.all_layers(), [node.layer for node in self.ordered()]
        before = [training_state(layer) for layer in outer]
        owned = {id(_owner(found[path])): lora for path, lora in adapters.items()}
        chosen = [layer for layer in found.values() if id(_owner(layer)) in owned and layer.lora_form(1) is not None]
        try:
            for layer in outer:
                layer.trainable = False
            for layer in sorted(chosen, key=lambda layer: layer.shared_with is not None):
                layer.lora = owned[id(_owner(layer))]
                layer.trainable = True
        except BaseException:
            for layer, state in zip(outer, before, strict=True):
                restore_training_state(layer, state)
            raise
        finally:
            self.note_setting()
        self._drop_state({tensor.name for tensor in self.parameters().values() if not tensor.stores_grad})

    def _drop_state(self, names: Collection[str | None]) -> None:
        """Lets all optimizers forget parameters of these names, and adapters that are gone."""
        for net in self.family():
            state, present = {} if net.optimizer is None else net.optimizer.state, net.parameters()
            for key in [key for key in state if key in names or (key not in present and is_adapter(key))]:
                state.pop(key)

    def _targets(self, targets: object) -> list[Layer]:
        """The layers that `add_lora` was given."""
        found = self.all_layers()
        forms = {path: form for path, layer in found.items() if (form := layer.lora_form(1)) is not None}
        if isinstance(targets, str) and targets in (ALL, ALL_LINEAR):
            left_out = self.output_names() if targets == ALL_LINEAR and self.input_ids() else []
            paths = [path for path in forms if path not in left_out and (targets == ALL or len(forms[path].a) == 2)]
            if not paths:
                raise GraphError(f"add_lora targets: wanted a net with layers of {targets!r}, received one without")
            return [found[path] for path in paths]
        given = [targets] if isinstance(targets, str | Layer) else targets
        if not isinstance(given, Collection) or not goes_through(given) or not given:
            raise TypeError(f"add_lora targets: wanted names of layers, or a name, received {targets!r:.100}")
        chosen: list[str] = []
        for each in given:
            name = each.path if isinstance(each, Layer) else each
            if isinstance(each, Layer) and found.get(name) is not each:
                raise GraphError(f"add_lora targets: wanted layers of the net, received {each!r}, which is in another")
            if not isinstance(name, str) or not name:
                raise TypeError(f"add_lora targets: wanted layers or their names, received {name!r:.100} among them")
            called = [path for path in found if path == name or path.endswith(f"/{name}")]
            chosen += (takers := [path for path in called if path in forms])
            if not takers:
                what = "that takes an adapter, a Dense or a convolution without groups" if called else "of the net"
                raise GraphError(f"add_lora targets: wanted the name of a layer {what}, received {name!r:.100}")
        return [found[path] for path in chosen]

    def merge_lora(self) -> list[str]:
        """Adds what the adapters have learnt to the weights, and drops them; returns the paths of the layers.

        The net computes what it did, to rounding. Its layers stay frozen, as `add_lora` left them. GraphError for a net
        without adapters.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> paths = net.add_lora(rank=2)
        >>> net.merge_lora(), sorted(net.parameters())
        (['dense'], ['dense/bias', 'dense/weight'])
        """
        self.device.check_bytes("merge_lora")
        self.check_usable()
        adapted = self.adapted_layers()
        if not adapted:
            raise GraphError("merge_lora: wanted a net with adapters, received one without")
        weights = {id(_owner(layer)): _owner(layer) for layer in adapted}.values()
        for layer in weights:
            merge(layer)
        gone = [layer.own_parameters[name].name for layer in weights for name in LORA_NAMES]
        for layer in adapted:
            layer.lora = None
        self._drop_state(gone)
        self.note_setting()
        return [layer.path for layer in adapted]

    def save_adapter(self, path: str | PathLike[str], *, names: object = None, base: str | None = None) -> None:
        """Writes the adapters to a folder, as the package peft reads and writes them: adapter_config.json, and
        adapter_model.safetensors.

        names: what layers are called in the other program, {layer: module}, or a map of `snapshots.maps`; by default a
        language model's layers are called as in Hugging Face's transformers, and those of other nets by their paths
        with dots. base: the name or path of the base model, for peft. GraphError for a net without adapters.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> paths = net.add_lora(rank=2)
        >>> net.save_adapter("adapter")
        """
        from singa_lite.snapshots import adapters

        self.device.check_bytes("save_adapter")
        adapters.save(self, path, names, base)

    def load_adapter(self, path: str | PathLike[str], *, names: object = None) -> None:
        """Reads a folder that `save_adapter` or the package peft wrote. Without adapters the net gets those of the file
        first, as by `add_lora`; adapters that it has must be the same.

        names: as for `save_adapter`. SnapshotError for a folder that does not fit; nothing is changed then.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> paths = net.add_lora(rank=2)
        >>> net.save_adapter("adapter")
        >>> net.load_adapter("adapter")
        """
        from singa_lite.snapshots import adapters

        self.device.check_bytes("load_adapter")
        adapters.load(self, path, names, self.adapt)


def _owner(layer: Layer) -> Layer:
    """The layer whose parameters it uses."""
    while layer.shared_with is not None:
        layer = layer.shared_with
    return layer
