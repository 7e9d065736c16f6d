"""`python -m singa_lite finetune`: adapters of a language model, trained within a budget on a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from itertools import takewhile
from pathlib import Path
from shlex import join

from singa_lite import data, models, optimizer, snapshots
from singa_lite.common import checks
from singa_lite.common.atomic import write_anew
from singa_lite.common.errors import DataFileError
from singa_lite.data import Tokenizer
from singa_lite.data.language import checked_messages, json_lines
from singa_lite.data.text_rows import Texts
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.snapshots import language

#: {key of a line: what reads such a file}.
READERS: Mapping[str, Callable[..., Texts]] = {"messages": data.chat, "prompt": data.prompts, "text": data.texts}
#: Positions of a row at most where nobody says how many.
_LENGTH = 256
#: Ids of a sample's answer at most, and ids of a text that a sample goes on from.
_SAMPLE, _BEGIN = 48, 8
#: Options that the results of a run go by, beside its data and base.
_RUN = ("length", "packed", "batch", "rank", "alpha", "rate", "precision", "seed")
#: What is shown of a sample's prompt, and its ids.
Prompt = tuple[str, list[int]]


@dataclass(frozen=True)
class FinetuneRequest:
    """The request of a command line.

    base: a GGUF file or a folder; data: a file of JSON lines; out: the folder of the adapter; budget: "200 MiB", "" for
    none; length: positions of a row, 0 for those of the longest text, at most 256 and the model's context; rank, alpha:
    of the adapters, alpha 0 for twice the rank; rate: of AdamW; precision: of activations, "" for float32; packed:
    several texts a row; prompt: of the samples, "" for the file's first; minutes: between checkpoints; seed: of the
    adapters.
    """

    base: str
    data: str
    out: str
    budget: str = ""
    epochs: int = 1
    batch: int = 1
    length: int = 0
    rank: int = 8
    alpha: float = 0.0
    rate: float = 2e-4
    precision: str = ""
    packed: bool = False
    prompt: str = ""
    minutes: float = 1.0
    seed: int = 0


def finetuned(wanted: FinetuneRequest) -> Iterator[str]:
    """Lines to print; trains and writes the adapter. A run that was killed goes on from its checkpoint in the folder.

    DataFileError, with the line's number, for a broken line, before anything is trained; ValueError for a folder that
    has another run; PlanError for a budget that is too small; SnapshotError for files that do not fit.
    """
    for name, least in (("epochs", 1), ("batch", 1), ("length", 0)):
        checks.integer(f"--{name}", getattr(wanted, name), least)
    saving = snapshots.Checkpoint(Path(wanted.out, "checkpoints"), every_minutes=wanted.minutes, keep=1)
    before = snapshots.latest(saving.folder.path)
    model = language.opened(wanted.base)
    rows, prompt = _texts(tokenizer_of(model.tokenizer, wanted.base), wanted, min(_LENGTH, model.config.context))
    del model  # its tokenizer takes 10 MiB, and the net has one of its own
    yield f"{wanted.data}: {rows}"
    net = models.load(wanted.base, _positions(rows, wanted), packed=wanted.packed, seed=wanted.seed)
    net.add_lora(wanted.rank, wanted.alpha or 2.0 * wanted.rank)
    precision = wanted.precision or "float32"
    net.compile(optimizer.AdamW(wanted.rate), memory_budget=wanted.budget or None, precision=precision)
    plan = net.plan_batch(wanted.batch)
    _note_run(wanted, before)
    yield plan.summary().partition("\nlive at the peak")[0]
    yield f"planned    {plan.total_bytes:,} bytes ({plan.total_bytes / 2**20:.1f} MiB), batch {wanted.batch}"
    del plan  # thousands of objects, which would stay while it trains
    yield f"before     {_sample(net, prompt, wanted.base)}" if before is None else f"going on from {before}"
    batches = rows if wanted.packed else rows.bucketed(wanted.batch)
    size = wanted.batch if wanted.packed else None
    net.fit(batches, batch_size=size, epochs=wanted.epochs, callbacks=saving, resume="auto")
    net.save_adapter(wanted.out, base=wanted.base)
    yield f"after      {_sample(net, prompt, wanted.base)}"
    yield f"adapter    {wanted.out}; python -m singa_lite {join(['chat', wanted.base, '--adapter', wanted.out])}"


def _note_run(wanted: FinetuneRequest, before: Path | None) -> None:
    """Notes what the results go by in the folder. ValueError where a run that began there had other data or options."""
    file = Path(wanted.out, "finetune.json")
    with open(wanted.data, "rb") as data_file:
        found = {"data": file_digest(data_file, "sha256").hexdigest(), **{name: getattr(wanted, name) for name in _RUN}}
    try:
        noted = dict(json.loads(file.read_text())) if before is not None and file.exists() else found
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: wanted the options of the run in this folder as JSON: {error}") from error
    other = [name for name, value in found.items() if noted.get(name) != value]
    if other:
        named = ", ".join(f"{name} {noted.get(name)!r:.16}" for name in other)
        raise ValueError(
            f"{file}: wanted {named}, as the run in this folder has, received others; --out names a folder"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_anew(file, json.dumps(found))


def _positions(rows: Texts, wanted: FinetuneRequest) -> int:
    """Of the net: a multiple of 16 that holds the longest text, where no length is asked for."""
    return rows.length if wanted.length or wanted.packed else min(rows.length, -(-int(rows.lengths.max()) // 16) * 16)


def _texts(tokenizer: Tokenizer, wanted: FinetuneRequest, length: int) -> tuple[Texts, Prompt]:
    """The rows of the file, by what its first line has, and the samples' prompt. length: if none is given."""
    first = next(json_lines(wanted.data))
    key = next((key for key in READERS if key in first.values), None)
    if key is None:
        keys = ", ".join(map(repr, READERS))
        raise DataFileError(f"{first.place}: wanted an object with one of {keys}, received {first.values!r:.100}")
    rows = READERS[key](wanted.data, tokenizer, wanted.length or length, packed=wanted.packed)
    if key == "messages":
        messages = checked_messages(first.place, first.values["messages"])
        asked = list(takewhile(lambda message: message["role"] != "assistant", messages))
        asked = [{"role": "user", "content": wanted.prompt}] if wanted.prompt else asked
        if not asked:
            return rows, ("", [])
        return rows, (asked[-1]["content"], tokenizer.encode(tokenizer.render(asked, generation=True)))
    ids = tokenizer.encode(wanted.prompt or first.text(key), begin=True)
    ids = ids if key == "prompt" or wanted.prompt else ids[:_BEGIN]
    return rows, (tokenizer.decode(ids), ids)


def tokenizer_of(tokenizer: Tokenizer | None, base: str) -> Tokenizer:
    """Returns the tokenizer of a model. ValueError for a model without one."""
    if tokenizer is None:
        raise ValueError(f"{base}: wanted a model with a tokenizer, received one without")
    return tokenizer


def _sample(net: FeedForwardNet, prompt: Prompt, base: str) -> str:
    """The prompt and what the net writes behind it, the likeliest id each time, on one line."""
    tokenizer, length, (text, given) = tokenizer_of(net.tokenizer, base), net.input_shapes()["tokens"][0], prompt
    count = len(given)
    if not 1 <= count <= length:
        return f"no sample, as the prompt has {count} ids and a row {length}"
    steps, stop = min(_SAMPLE, length + 1 - count), list(tokenizer.stop_ids)
    ids = net.generate(given, steps, temperature=0.0, stop=stop)[count:].tolist()
    return f"{text!r} -> {tokenizer.decode([each for each in ids if each not in stop])!r}"
