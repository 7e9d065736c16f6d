"""WalkedNet: a net's forward, and its backward as a generator, by hand; and what reads parameters beside a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from numpy.typing import DTypeLike

from singa_lite.common.checks import flag, names
from singa_lite.common.errors import GraphError
from singa_lite.data.loading import batch
from singa_lite.graph.graph import Pause
from singa_lite.layer.calls import no_op
from singa_lite.layer.layer import OneOrMore
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.run import LayerGradients, Run
from singa_lite.optimizer import Optimizer
from singa_lite.tensor import DeviceSpec
from singa_lite.training import checked
from singa_lite.training.settings import Settings
from singa_lite.training.step_cache import StepCache
from singa_lite.training.steps import fed_tensors
from singa_lite.training.steps.step_call import StepCall, under_way
from singa_lite.training.trainer import Trainer


class WalkedNet(LayerGraph):
    """Layers that a user can walk forward and back. Base of `FeedForwardNet`.

    optimizer: what the net was compiled with, if it was. device, dtype, seed: see `FeedForwardNet`.
    """

    def __init__(self, device: DeviceSpec, dtype: DTypeLike, seed: int | None) -> None:
        super().__init__(device, dtype, seed)
        self.optimizer: Optimizer | None = None
        self._trainer = Trainer(StepCache(self, Settings(graph=False)))

    @property
    def trainer(self) -> Trainer:
        """What does the net's steps."""
        return self._trainer

    @property
    def _steps(self) -> StepCache:
        return self._trainer.steps

    def forward(
        self, training: bool, x: object, output: Collection[str] = (), *, freeze: str | None = None
    ) -> OneOrMore:
        """Run all layers.

        training: keep what backward needs, drop out, use the batch's statistics. x: the batch, or {input layer:
        batch}. output: layers whose outputs are wanted too, by path (those of each run, where one runs more than
        once); the result is a dict {name: output} then, and for a net with several outputs; otherwise the output
        itself. freeze: layers before this one, in topological order, run as in evaluation and keep nothing.

        x may come from a tape, such as another net's output: `autograd.backward` of what is computed from the result
        walks back through both, this net's `backward` through its own layers alone. GraphError where a frozen layer
        would cut that tape.
        """
        nodes, training = self.ordered(), flag("forward training", training)
        call = under_way.get()
        if call is not None:
            _check_training(training, call)
        elif self.device.graph is None:
            self.device.check_bytes("forward")
        if call is None and training:
            self._trainer.check_whole("forward")
            self._trainer.open_forward.pass_over()
        self._check_names("forward", [*names("forward output", output), freeze])
        arrays = batch.checked_inputs(self, x)
        run = Run(nodes, self.device, training, freeze, no_op if call is None else call.changing)
        result = run.forward(fed_tensors.inputs(self, arrays), output)
        if training and call is None:
            self._trainer.open_forward.keep(run)
        return result

    def backward(
        self, dy: object, output: Collection[str] = (), *, freeze: str | None = None
    ) -> Iterator[LayerGradients]:
        """Yield each layer's gradients, last layer first: (names, values, gradients, layer_gradients).

        dy: the derivative by the net's output, or {layer: derivative}. Layers without parameters are yielded too.
        A layer's derivative is computed before its gradients are handed out, so its parameters may be updated at
        once. The gradients are given back when the next layer is asked for: copy what must stay. A shared
        parameter comes once, with the layer that contributes last. layer_gradients is one dict for the whole
        walk; a layer named in `output` is entered with the derivative by its input (a list for several inputs).
        The walk ends at the net's inputs: if another net's output went in, name the input layer in `output`, and give
        what comes back to the other net's backward.
        freeze: stop after this layer. Draining the generator ends the step; one closed earlier leaves the net
        half updated, and it says so until `discard_step` or `load`.
        GraphError without a forward(True) before, for a second backward, or if there were two forwards and the outputs
        of both are still held.
        """
        if under_way.get() is not None:
            raise GraphError("backward: wanted call.update(loss) within a step of compile(step=)")
        open_forward = self._trainer.open_forward
        self._trainer.check_whole("backward")
        open_forward.check()
        self._check_names("backward", [*names("backward output", output), freeze])
        return open_forward.walk(checked.derivatives(self, dy), output, freeze)

    def beside_next_step(self, begin: Callable[[], Pause]) -> None:
        """Let something read the parameters while the next training step runs forward, as a checkpoint does.

        begin: called once, when that step begins. What it returns says which blocks are read meanwhile, and how to wait
        for that; the step waits before its first operation that writes one of them.
        """
        self._trainer.readers.at_next_step(begin)

    def reads(self, pause: Pause) -> None:
        """Announce something that is about to read parameters, so that no step overwrites them meanwhile.

        A training step waits for it; after a step that was interrupted the next call ends it.
        """
        self._trainer.readers.note(pause)

    @property
    def unfinished_at(self) -> str:
        """The layer at which the last backward() was left before its end; "" after whole steps."""
        return self._trainer.unfinished_at

    def discard_step(self) -> None:
        """Forget a forward, or a step or load that was left before its end. What it has changed stays."""
        if self.optimizer is not None:
            self.optimizer.end_step()
        self._trainer.discard()

    def begin_restore(self) -> None:
        """A snapshot is being put into the net: until `discard_step` the net counts as unfinished."""
        self._trainer.readers.end()
        self._trainer.left_at = "(while a snapshot was being loaded: parts of it are in the net)"


def _check_training(training: bool, call: StepCall) -> None:
    """GraphError for a forward that trains within an evaluation."""
    if training and not call.training:
        raise GraphError(
            "forward within an evaluation by compile(step=): wanted forward(call.training, x), which is False here, "
            "received True"
        )
