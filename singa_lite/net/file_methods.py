"""FileMethods: a net's configuration, and the files that hold it."""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from typing import TYPE_CHECKING

from numpy.typing import DTypeLike

from singa_lite.common.checks import flag, names
from singa_lite.training.trained_net import TrainedNet

if TYPE_CHECKING:
    from singa_lite.snapshots.parts import LeftOut  # formats of files take time to import


class FileMethods(TrainedNet):
    """Methods of `FeedForwardNet` about configurations and files; `snapshots` does the work."""

    def config(self) -> dict[str, object]:
        """Returns the net without parameters as plain values for JSON: layers, wiring, loss, metric, optimizer and the
        options of `compile`. `from_config` makes such a net again, and `save` puts it into files.

        Rewriting rules are in it by their names. ConfigError names what cannot be written down, such as a function that
        a layer was given.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> sorted(net.config())
        ['compiled', 'dtype', 'format', 'layers', 'loss', 'metric', 'seed', 'version']
        """
        from singa_lite.snapshots.config import config_of

        return dict(config_of(self))

    def save(self, path: str | PathLike[str], *, weights_only: bool = False, **options: object) -> None:
        """Writes parameters, state, optimizer state and step to a file: the whole new file or the old one.

        The path's suffix chooses the format; .h5 is the native one. weights_only: parameters and state alone, without
        random keys, for other programs. options: of the format, `snapshots.formats`. Of several processes that train
        it together rank 0 writes, and the others return at once; with shard="state" all call it, and rank 0 collects
        their parts of the state, one array at a time.

        A language model, of `models.load` or `models.language_model`, is also written as a GGUF file, "x.gguf", or as a
        folder of Hugging Face's, "folder/". Quantised weights go out as they came; quantization="q8_0" (also "q4_0",
        "q4_1", "f16", "bf16") is the format of matrices that are parameters. Other files lack the bytes of quantised
        weights: a net that `singa_lite.load` makes of one wants `set_frozen`.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.save("net.h5")
        >>> net.save("net.safetensors", weights_only=True)
        """
        from singa_lite.snapshots import formats, language

        self.device.check_bytes("save")
        if language.is_model(path):
            language.save(self, path, **options)
            return
        formats.save(self, path, weights_only=weights_only, **options)

    def load(
        self,
        path: str | PathLike[str],
        optimizer: bool | None = None,
        *,
        layers: Collection[str] | None = None,
        strict: bool = True,
        **options: object,
    ) -> LeftOut:
        """Reads what `save` wrote. Missing, extra, wrong-shaped or wrong-typed entries are a SnapshotError.

        optimizer: whether to read the optimizer's state too; default: if the net is compiled, unless the file is of a
        kind that has none, such as one of weights alone.
        layers: only these, by name or path, with what is in them; the file may hold others. strict: False reads what
        fits and leaves the rest as it is. With either the optimizer stays as it is. Returns the names of what was left
        out: (missing, differing, unused).
        Nothing changes unless all that is to be read can be. options: of the format, as in `save`.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.save("net.h5")
        >>> net.load("net.h5")
        LeftOut(missing=(), differing=(), unused=())
        """
        from singa_lite.snapshots import formats

        self.device.check_bytes("load")
        chosen = None if layers is None else names("load layers", layers)
        self._check_names("load layers", chosen or ())
        return formats.load(self, path, optimizer, chosen, flag("load strict", strict), **options)

    def export(self, path: str | PathLike[str], *, opset: int = 21, dtype: DTypeLike | None = None) -> None:
        """Writes the net's predictions as a file of ONNX, which other programs run.

        Batch size is symbolic, and so is the length of sequences where all layers can do with fewer steps. Inputs and
        outputs have the layers' names, parameters theirs. opset: the version of ONNX's operators, 17 to 23. dtype: of
        all floats, those of the net where None. SnapshotError names an operation that ONNX cannot express.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.export("net.onnx")
        """
        from singa_lite.snapshots.onnx.export import export

        self.device.check_bytes("export")
        export(self, path, opset, dtype)
