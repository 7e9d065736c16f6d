"""The training step of a batch: forward, back, and with each layer's gradients as they come its update."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol, TypeAlias

from singa_lite.autograd import add, no_grad
from singa_lite.autograd.ops.arithmetic import product
from singa_lite.common.described import Described
from singa_lite.graph.graph import Graph
from singa_lite.layer.calls import no_op
from singa_lite.layer.freezing import Freeze, freezing
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.run import Run
from singa_lite.optimizer import GlobalNorm, Optimizer
from singa_lite.optimizer.gradient_accumulation import WHOLE, AccumulationSlot
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.optimizer.stepping import StepTransaction
from singa_lite.parallel.gradients.buckets import Take
from singa_lite.parallel.gradients.data_parallel_step import COUNTED, DataParallelStep
from singa_lite.tensor import Tensor
from singa_lite.training.loop.measures import LOSSES
from singa_lite.training.objective import Objective
from singa_lite.training.steps.micro_batches import Fed, GradientSums, Share, added, cut, positions
from singa_lite.training.steps.recorded_steps import Feeds
from singa_lite.training.steps.step_functions import EvaluateStep, Values
from singa_lite.training.steps.updates import UnscaleAndClip, Updates, updates_of

#: Called with each step's loss, and whether parameters have moved since.
Look: TypeAlias = Callable[[Tensor, bool], None]


class Marked(Protocol):
    """What says of a net where its last step was left, "" after whole ones."""

    interrupted_at: str


class TrainStep(EvaluateStep):
    """Forward, loss, and each layer's update as soon as its gradients are there; (loss, metric) from before it.

    freeze: which layers do not train, see `Freeze`. micro_batches: in how many pieces the batch goes
    forward and back; what each piece's gradients are of the whole batch's mean adds up, and is applied once. clip: by
    which gradients are clipped. part: which batch of a group of several it is, whose mean is applied at the last one.
    scale: by what the loss is scaled, whose gradients are derived. together: what it does because other processes train
    the net too; None: this one trains it alone. look: called with each step's loss, and whether
    parameters have moved since; no record is made of it.
    """

    kind = "train"

    def __init__(
        self,
        layers: LayerGraph,
        objective: Objective,
        optimizer: Optimizer,
        freeze: Freeze,
        micro_batches: int = 1,
        clip: GlobalNorm | None = None,
        part: AccumulationSlot = WHOLE,
        scale: LossScale | None = None,
        together: DataParallelStep | None = None,
    ) -> None:
        super().__init__(layers, objective)
        self.optimizer = optimizer
        self.freeze = freeze
        self.micro_batches = micro_batches
        self.clip = clip
        self.part = part
        self.scale = scale
        self.together = together
        self.look: Look | None = None
        self._updating: Run | None = None

    @property
    def stopped_at(self) -> str:
        """The layer at which the walk back that updates stands, "" before its first gradients and after its end."""
        return self._updating.stopped_at if self._updating is not None else ""

    @property
    def beside(self) -> tuple[Marked, ...]:
        """What else is left half done where the step is: other nets that it trains."""
        return ()

    def one_step(self) -> StepTransaction:
        """A `with` block around the step, which does not count if the block fails before it is kept."""
        return self.optimizer.one_step()

    def begin(self) -> None:
        """Before a replay: begin the step of each optimizer that updates in it."""
        if self.part.updates:
            self.optimizer.begin_step()

    def evaluation(self) -> EvaluateStep:
        """What evaluates by the same objective."""
        made = EvaluateStep(self.layers, self.objective)
        if self.observer is not None and self.observer.names:
            made.observer = self.observer.without_norms()
        return made

    @property
    def key(self) -> tuple[Hashable, ...]:
        limit = None if self.clip is None else self.clip.limit
        how = self.freeze, self.micro_batches, limit, self.part, id(self.scale), id(self.together)
        return *super().key, id(self.optimizer), *how

    def synchronize_ranks(self, sums: int, feeds: Feeds) -> None:
        """Before anything changes, where other processes take part: ParallelError unless all are about to do it.

        sums: of the plan, see `Graph.sums`.
        """
        if self.together is not None:
            self.together.synchronize(sums, self.objective.counts(feeds), self.layers.device)

    @property
    def parts(self) -> Iterable[Described]:
        yield from super().parts
        yield self.optimizer
        yield from (part for part in self.optimizer.parts if isinstance(part, Described))

    def note_in(self, graph: Graph) -> None:
        super().note_in(graph)
        self.optimizer.note_in(graph)
        graph.options.note_tensors(self.layers.param_values())
        graph.options.note_walk()

    def moved_values(self) -> list[Tensor]:
        """All parameters that it may move."""
        return self.layers.param_values()

    def operations(self, fed: Fed, changing: Callable[[], object] = no_op) -> Values:
        """changing: called before the first change of a parameter or a layer's state, and perhaps again."""
        if self.together is None:
            return self._operations(fed, changing)
        with self.together.in_step(self.layers.device) as turn:
            return self._operations(fed, changing, turn)

    def _operations(self, fed: Fed, changing: Callable[[], object], turn: Tensor | None = None) -> Values:
        """turn: what keeps sums over processes in their order, where there are any."""
        part = self._weighed(fed)
        pieces = cut(fed, self.micro_batches, self.objective.counting())
        sums, closing = GradientSums(), self._closing()
        del fed
        share, run = pieces[0].share, self._run(changing)
        values = self._forward(run, pieces.pop(0).fed, share)
        in_pieces = bool(pieces)
        while pieces:
            for name, _, gradient in self._gradients(run, share, part):
                with self.layers.device.scope(layer=name.rpartition("/")[0]):
                    sums.add(name, gradient)
            share, run = pieces[0].share, self._run(changing)
            loss, metric = self._forward(run, pieces.pop(0).fed, share)
            with no_grad():
                values = add(values[0], loss), added(values[1], metric)
        if in_pieces:
            values = values[0], self.objective.of_pieces(values[1])
        if self.look is not None and self.layers.device.graph is None:
            self.look(values[0], False)
        updates = updates_of(self.optimizer, changing, part, closing)
        self._update(run, self._gradients(run, share, part), updates, sums, closing, turn)
        self.optimizer.gathering.note(part)
        return values

    def _weighed(self, fed: Fed) -> AccumulationSlot:
        """Returns the accumulation slot with this batch's weight in its group, where the loss is a mean of positions.
        That holds for an only loss whose gradients are added up in tensors of their own, as those in a momentum cannot
        be weighed anew.
        """
        counting = [at for key, at in self.objective.counting().items() if key == LOSSES + at[0]]
        gathering = self.optimizer.gathering
        if self.part.is_whole or not gathering.clipped or not counting or len(self.objective.outputs) > 1:
            return self.part
        if self.together is not None:
            return gathering.weighed(self.part, self.together.shares(self.layers.device)[COUNTED])
        (output, ignored) = counting[0]
        with no_grad():
            return gathering.weighed(self.part, positions(fed["target"][output], ignored))

    def _closing(self) -> UnscaleAndClip | None:
        if self.clip is None and self.scale is None:
            return None
        return UnscaleAndClip(self.clip, self.scale, self.layers.device, self.layers.states())

    def _run(self, changing: Callable[[], object]) -> Run:
        layers = self.layers
        return Run(layers.ordered(), layers.device, True, self.freeze, changing, watcher=self.observer)

    def _forward(self, run: Run, fed: Fed, share: Share) -> Values:
        return self.objective.values(True, run.forward(dict(fed["input"]), ()), fed, share)

    def _gradients(self, run: Run, share: Share, part: AccumulationSlot) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(name, parameter, gradient) on the walk back over a piece with this share of the batch; of a group's mean."""
        scale = None if self.scale is None else self.scale.scale(self.layers.device)
        if scale is not None and self.observer is not None:
            self.observer.scaled_by(scale, self.layers.device)
        if self.together is not None:
            scales = self.together.scales(self.layers.device, scale)
        else:
            scales = {} if scale is None else dict.fromkeys(self.objective.outputs, scale)
        batches = part.batches
        if part.weighed is not None:  # of the only output
            (name,), batches, own = self.objective.outputs, 1, part.weighed.own
            scales = {name: product(scales[name], own) if name in scales else own}
        derivatives = self.objective.backward(share._replace(batches=batches), scales)
        walk = run.backward({name: [dy] for name, dy in derivatives.items()}, frozenset(), None)
        del derivatives
        for names, values, gradients, _ in walk:
            yield from zip(names, values, gradients, strict=True)

    def _update(
        self,
        run: Run,
        gradients: Iterable[tuple[str, Tensor, Tensor]],
        updates: Updates,
        sums: GradientSums,
        closing: UnscaleAndClip | None,
        turn: Tensor | None,
    ) -> None:
        """Drain backward, and do with each layer's gradients in its turn what is to be done with them."""
        self._updating = run if updates.within_walk else None
        take, buckets = self._taking(updates), None
        if self.together is not None and turn is not None:
            at_once, parameters = updates.within_walk, self.layers.param_values()
            buckets = self.together.gradients(turn, parameters, take, at_once, self.part.updates)
            take = buckets.take
        names = []
        for name, value, gradient in gradients:
            names.append(name)
            with self.layers.device.scope(layer=name.rpartition("/")[0]):
                take(name, value, sums.total(name, gradient))
        if buckets is not None:
            buckets.end()
        squares = None if closing is None else closing.squares
        if squares is not None and self.together is not None and turn is not None:
            self.together.add_up_squares(squares, turn)
        if self.observer is not None and self.together is not None and turn is not None:
            self.together.add_up_norms(self.observer.squares_of(names, self.layers.device), turn)
        updates.end()
        if buckets is not None:
            buckets.gather()
        if self.together is not None and turn is not None:
            layers = freezing((node.layer for node in self.layers.ordered()), self.freeze).trained
            self.together.share_statistics(turn, layers)

    def _taking(self, updates: Updates) -> Take:
        """What is done with each gradient of the whole batch."""
        observer = self.observer
        if observer is None:
            return updates.take

        def observed(name: str, value: Tensor, gradient: Tensor) -> None:
            observer.gradient(name, value, gradient)
            updates.take(name, value, gradient)

        return observed
