"""TextMethods: texts that a net writes, as ids or in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.keywords import explains_keywords
from singa_lite.data import Tokenizer
from singa_lite.net import generation
from singa_lite.training.trained_net import TrainedNet


class TextMethods(TrainedNet):
    """Methods of `FeedForwardNet` that write texts. tokenizer: of its ids, where it has one."""

    tokenizer: Tokenizer | None = None

    @explains_keywords()
    def generate(
        self,
        prompt: object,
        steps: int,
        temperature: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        *,
        stop: int | Sequence[int] = (),
        lengths: object = None,
        stream: Callable[[NDArray[np.int64]], object] | None = None,
    ) -> NDArray[np.int64]:
        """Returns texts that go on from a prompt, id by id, each drawn by what the net gives for those before it.

        prompt: ids (time,), or (n, time) for n texts, of any integer dtype. steps: how many ids are added, at least 1.
        Returns int64 (time + steps,) or (n, time + steps), the prompt first.

        The net has one input of ids (time,) and gives scores, or a softmax, of the id that follows each position, or
        the last one alone. temperature: divides the scores; 0: the id of the largest score, always. top_k: only the k
        ids of the largest scores are drawn; 0: all. seed: of Philox's numbers, text i has a stream of its own.

        stop: ids that end a text, which are its last; -1 stands behind a text's end where others are longer. lengths:
        of each prompt, (n,), where they are unequal; what is behind one's end is not read. Each text is the same as
        alone. stream: called with the new id of each text, int64 (n,), as soon as it is drawn, -1 for none; it may not
        use the net.

        Each position goes through the layers once: attention keeps keys and values, recurrent layers their state, as
        many bytes as `plan_generation` says, until longer texts want more, or a budget or a limit these bytes.
        GraphError for layers that need later positions, each with its reason; ShapeError where the text would be longer
        than layers have positions; ValueError for ids that the net does not have. Nothing that training uses is
        changed. See docs/generation.md.

        >>> net = models.gpt2(vocabulary=20, positions=16, features=8, heads=2, blocks=1)
        >>> net.generate([3, 7, 5], steps=4).shape
        (7,)
        """
        self.device.check_bytes("generate")
        options = generation.Options(steps, temperature, top_k, seed, stop, lengths, stream)
        cache = self._trainer.steps
        return cache.exclusively(generation.generate, self, cache, prompt, options)

    @explains_keywords()
    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]],
        steps: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        seed: int = 0,
        *,
        stream: Callable[[str], object] | None = None,
    ) -> str:
        """Returns the net's answer to a question, or to a conversation, as text.

        messages: the question, or [{"role": "user", "content": "..."}, ...], of which `tokenizer` makes the prompt.
        steps: the most ids of the answer, which ends at one of the tokenizer's `stop_ids`; None: 256, or as many as
        layers have positions for. temperature, top_k, seed: as for `generate`; 0, the default, always gives the same
        answer. stream: called with each piece of the text, of whole letters, as soon as it is there.

        GraphError for a net without a tokenizer, DataFileError for what are no messages; else as `generate`.

        >>> net = models.gpt2(vocabulary=256, positions=64, features=8, heads=2, blocks=1)
        >>> net.tokenizer = data.ByteTokenizer()  # a net that was loaded has its own
        >>> len(net.chat("2+2=", steps=4)) <= 4
        True
        """
        self.device.check_bytes("chat")
        options, cache = generation.Options(steps, temperature, top_k, seed), self._trainer.steps
        return cache.exclusively(generation.answer, self, cache, self.tokenizer, messages, options, stream)
