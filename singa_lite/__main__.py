"""`python -m singa_lite info`: what this installation has and what it will use, one fact a line; and snapshots.

`snapshot inspect FILE`, `snapshot convert FROM TO`, `snapshot diff A B`: of all formats that `net.load` reads.
`plan MODULE:FUNCTION --batch N`: what a net takes to train, by its plan, on a machine that need not be there.
`plan BASE --length N --lora RANK`: the same of a language model in a GGUF file, a folder, or a config.json alone.
`finetune BASE DATA.jsonl --out FOLDER`: trains adapters of a language model; a killed run goes on from its checkpoint.
`chat BASE --adapter FOLDER`: answers to a question, or to each line of the input.
`export NET FILE.onnx`: a net's predictions for other programs.
`tune MODULE:FUNCTION`, `tune --net NAME`: measures in which way kernels do a net's calls fastest, and keeps that.

Exit status: 0, also where something is missing or a setting is wrong, which the lines of `info` say; 1 where two
snapshots differ, and where a net does not fit into the memory that `plan` or `finetune` was told; 2 for a bad command
line, and for a file that cannot be read or written; 130 where Ctrl-C ends a command; 141 where the reader of a pipe has
closed it, as of a program that SIGPIPE ends.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import singa_lite
from singa_lite.common.terminal import escape_streams

#: The exit status where the reader of a pipe has closed it.
_UNREAD = 128 + 13
#: The exit status where Ctrl-C ends a command.
_INTERRUPTED = 128 + 2


def run() -> int:
    """`main` for a process of its own: escapes what its terminal cannot show, and is silent where a pipe is closed."""
    escape_streams()
    warnings.formatwarning = lambda message, *_: f"python -m singa_lite: {message}\n"
    try:
        status = main()
        if sys.stdout is not None:  # as where it was closed from the beginning
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again when it ends
        if isinstance(error, BrokenPipeError):
            return _UNREAD
        print(f"python -m singa_lite: {error}", file=sys.stderr)
        return 2
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m singa_lite", description="About this installation of singa_lite.")
    parser.add_argument("--version", action="version", version=f"singa_lite {singa_lite.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("info", help="versions, libraries, kernels, threads, processor and memory")
    _add_snapshot(commands.add_parser("snapshot", help="look into snapshots, convert and compare them"))
    _add_plan(commands.add_parser("plan", help="the memory that a net takes, by its plan; nothing runs"))
    _add_finetune(commands.add_parser("finetune", help="train adapters of a language model within a memory budget"))
    _add_chat(commands.add_parser("chat", help="ask a language model, perhaps with an adapter"))
    _add_export(commands.add_parser("export", help="write a net's predictions as an ONNX file"))
    _add_tune(commands.add_parser("tune", help="measure in which way kernels do a net's calls fastest, and keep that"))
    options, rest = parser.parse_known_args(arguments)
    if options.command == "chat" and not options.question and len(rest) == 1 and not rest[0].startswith("-"):
        options.question = rest.pop()  # argparse takes the optional one beside BASE alone, not behind an option
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command is None:
        parser.print_help()
        return 0
    if options.command in _COMMANDS:
        return _COMMANDS[options.command](options)
    from singa_lite.commands.info import facts

    for name, value in facts(singa_lite.__version__):
        print(f"{name:<16}  {value}")
    return 0


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    inspect = actions.add_parser("inspect", help="what is in a file; every array is read, and verified if it can be")
    inspect.add_argument("file")
    convert = actions.add_parser("convert", help="the same in the format of another suffix")
    convert.add_argument("origin")
    convert.add_argument("target")
    convert.add_argument("--weights-only", action="store_true", help="parameters and state alone")
    diff = actions.add_parser("diff", help="what two files differ in")
    diff.add_argument("first")
    diff.add_argument("second")


def _snapshot(options: argparse.Namespace) -> int:
    from singa_lite.snapshots import command

    try:
        if options.action == "inspect":
            for line in command.inspected(options.file):
                print(line)
            return 0
        if options.action == "convert":
            print(f"{options.target}: {command.convert(options.origin, options.target, options.weights_only)}")
            return 0
        status = 0
        for difference in command.differences(options.first, options.second):
            print(difference)
            status = 1
        return status
    except BrokenPipeError:
        raise
    except (OSError, ImportError, ValueError, MemoryError) as error:  # SnapshotError is an OSError
        print(f"python -m singa_lite snapshot: {str(error) or type(error).__name__}", file=sys.stderr)
        return 2


def _add_plan(parser: argparse.ArgumentParser) -> None:
    function = "which returns a net on the default device, compiled or not; or SCRIPT.py:FUNCTION; or BASE.gguf, a "
    function += "folder of Hugging Face's, or its config.json alone"
    parser.add_argument("function", metavar="MODULE:FUNCTION", help=function)
    parser.add_argument("--batch", type=int, default=16, help="samples of a step, default 16")
    parser.add_argument(
        "--optimizer", default="", metavar="NAME", help="in the place of the net's own: adamw, sgd, ..."
    )
    parser.add_argument("--loss", default="", metavar="NAME", help="in the place of the net's own")
    parser.add_argument("--device", default="cpu", metavar="KIND", help="cpu (the default), onednn, numpy or cuda")
    parser.add_argument("--memory", default="", metavar="SIZE", help="what the machine has, such as '24 GiB'")
    parser.add_argument("--memory-budget", default="", metavar="SIZE", help="plan within so many bytes")
    parser.add_argument("--precision", default="", metavar="NAME", help="of activations: bfloat16 or float16; or tf32")
    parser.add_argument("--state-dtype", default="", metavar="NAME", help="of the optimizer's state: bfloat16 or int8")
    parser.add_argument("--parameter-dtype", default="", metavar="NAME", help="of matrices: bfloat16 or float32")
    parser.add_argument("--rounding", default="", metavar="NAME", help="of bfloat16: stochastic or compensated")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="update by the mean of N batches")
    parser.add_argument("--micro-batches", type=int, default=1, metavar="N", help="train a batch in N pieces")
    parser.add_argument("--input-shape", default="", metavar="3,224,224", help="the function's only argument")
    parser.add_argument("--prediction", action="store_true", help="plan a prediction in the place of a training step")
    parser.add_argument("--curve", action="store_true", help="also what smaller budgets cost")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters on all linear layers")
    parser.add_argument("--length", type=int, default=0, metavar="N", help="ids of a language model's sample")
    parser.add_argument("--weights", default="", metavar="FORMAT", help="of a language model, such as q4_0 or float32")


def _plan(options: argparse.Namespace) -> int:
    from singa_lite.commands.plan_command import PlanRequest, planned

    return _printed("plan", lambda: planned(PlanRequest(**_request_options(options))))


def _request_options(options: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name != "command"}


def _printed(command: str, lines: Callable[[], Iterable[str]]) -> int:
    """Print the lines of a command as they come; the exit status."""
    from singa_lite.compiler.placement.problem import PlanError

    try:
        for line in lines():
            print(line, flush=True)
        return 0
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:  # a Checkpoint says where it has written one
        print(f"python -m singa_lite {command}: {str(error) or 'interrupted'}", file=sys.stderr)
        return _INTERRUPTED
    except (OSError, ImportError, ValueError, TypeError, RuntimeError, MemoryError) as error:  # errors of a net, too
        print(f"python -m singa_lite {command}: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1 if isinstance(error, PlanError) else 2


def _add_finetune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="a GGUF file, or a folder of Hugging Face's")
    parser.add_argument(
        "data", metavar="DATA.jsonl", help='lines with "messages", "prompt" and "completion", or "text"'
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="of the adapter, and of the run's checkpoints")
    parser.add_argument("--budget", default="", metavar="SIZE", help="bytes that training may take, such as '200 MiB'")
    parser.add_argument("--epochs", type=int, default=1, help="default 1")
    parser.add_argument("--batch", type=int, default=1, help="rows of a step, default 1")
    parser.add_argument(
        "--length",
        type=int,
        default=0,
        help="ids of a row, default the longest text's, at most 256 and the model's context",
    )
    parser.add_argument("--rank", type=int, default=8, help="of the adapters, default 8")
    parser.add_argument("--alpha", type=float, default=0.0, help="of the adapters, default twice the rank")
    parser.add_argument("--rate", type=float, default=2e-4, help="AdamW's learning rate, default 2e-4")
    parser.add_argument("--precision", default="", metavar="NAME", help="of activations: bfloat16")
    parser.add_argument("--packed", action="store_true", help="several texts share a row")
    parser.add_argument("--prompt", default="", help="of the samples before and after, default the file's first")
    parser.add_argument("--minutes", type=float, default=1.0, help="between checkpoints, default 1")
    parser.add_argument("--seed", type=int, default=0, help="of the adapters, default 0")


def _finetune(options: argparse.Namespace) -> int:
    from singa_lite.commands.finetune import FinetuneRequest, finetuned

    return _printed("finetune", lambda: finetuned(FinetuneRequest(**_request_options(options))))


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="a GGUF file, or a folder of Hugging Face's")
    parser.add_argument("question", nargs="?", default="", help="default: each line of the input is one")
    parser.add_argument("--adapter", default="", metavar="FOLDER", help="that finetune or peft wrote")
    parser.add_argument("--length", type=int, default=0, help="ids of a conversation")
    parser.add_argument("--steps", type=int, default=256, help="ids of an answer at most, default 256")
    parser.add_argument("--temperature", type=float, default=0.0, help="default 0, the likeliest answer")
    parser.add_argument("--seed", type=int, default=0, help="of drawn answers")


def _chat(options: argparse.Namespace) -> int:
    from singa_lite.commands.chat import ChatRequest, chatted, questions

    def write(piece: str) -> None:
        print(piece, end="", flush=True)

    def lines() -> Iterator[str]:
        chatted(ChatRequest(**_request_options(options)), questions(sys.stdin), write)
        yield from ()

    return _printed("chat", lines)


def _add_tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("function", nargs="?", default="", metavar="MODULE:FUNCTION", help="which returns a net")
    parser.add_argument("--net", default="", help="in its place: resnet50, vgg16 or mobilenet_v2, 224 x 224 pixels")
    parser.add_argument("--batch", type=int, default=16, help="samples of a step, default 16")
    parser.add_argument(
        "--scratch", default="16 MiB", help="by which a chosen way may need more than the rule's, default 16 MiB"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be chosen, keep nothing")


def _tune(options: argparse.Namespace) -> int:
    from singa_lite.commands.tune import tuned

    made = options.function, options.net, options.batch, options.scratch, not options.dry_run
    return _printed("tune", lambda: tuned(*made))


def _add_export(parser: argparse.ArgumentParser) -> None:
    net = "a file of net.save; a GGUF file or a folder of Hugging Face's; or MODULE:FUNCTION, which returns a net"
    parser.add_argument("net", metavar="NET", help=net)
    parser.add_argument("path", metavar="FILE.onnx")
    parser.add_argument("--opset", type=int, default=21, help="version of ONNX's operators, default 21")
    parser.add_argument("--dtype", default="", metavar="NAME", help="of all floats: float32, float16 or bfloat16")
    parser.add_argument("--length", type=int, default=0, help="most ids of a language model's sample")


def _export(options: argparse.Namespace) -> int:
    from singa_lite.commands.export import ExportRequest, exported

    return _printed("export", lambda: exported(ExportRequest(**_request_options(options))))


_COMMANDS = {
    "export": _export,
    "snapshot": _snapshot,
    "plan": _plan,
    "finetune": _finetune,
    "chat": _chat,
    "tune": _tune,
}

if __name__ == "__main__":
    sys.exit(run())
