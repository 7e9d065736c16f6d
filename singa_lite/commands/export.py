"""`python -m singa_lite export`: a net's predictions as an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from singa_lite import models
from singa_lite.commands.named_net import net_of
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.net.open_net import load
from singa_lite.snapshots import language


@dataclass(frozen=True)
class ExportRequest:
    """The request of a command line.

    net: a file of `net.save`, a GGUF file or a folder of a language model, or MODULE:FUNCTION; path: of the new file;
    opset, dtype: as of `net.export`, "" for the net's; length: of a language model, 0 for its context.
    """

    net: str
    path: str
    opset: int = 21
    dtype: str = ""
    length: int = 0


def exported(wanted: ExportRequest) -> Iterator[str]:
    """Writes the file; yields one line that says what is in it."""
    net = _net_of(wanted)
    net.export(wanted.path, opset=wanted.opset, dtype=wanted.dtype or None)
    inputs, outputs = (", ".join(names) for names in (net.input_shapes(), net.output_names()))
    weights = len(net.param_names()) + len(net.frozen())
    yield f"{wanted.path}: {inputs} to {outputs}, {weights} weights, opset {wanted.opset}"


def _net_of(wanted: ExportRequest) -> FeedForwardNet:
    if language.is_model(wanted.net):
        return models.load(wanted.net, wanted.length or None)
    if ":" in wanted.net and not os.path.exists(wanted.net):
        return net_of(wanted.net)
    return load(wanted.net)
