"""Scripts in processes of their own that start within 10 ms: a server has imported the package, and forks one for each.

Each has its own arguments, environment, folder, standard streams, signals and exit code, as one that Python starts.
What is read as Python or a library is loaded (numbers of threads, PYTHON...), or measures memory, is for `in_process`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import IO, Any

import singa_lite

TESTS = Path(__file__).resolve().parent
#: Where scripts find the package and the modules of the tests.
FOUND = (str(Path(singa_lite.__file__).parents[1]), str(TESTS), str(TESTS / "snapshots"))
#: Beginnings of the names of variables that are read as the server starts.
READ_AT_START = ("PYTHON", "OMP_", "OPENBLAS", "MKL_", "GOMP_", "MALLOC_", "LD_")
PIPE = subprocess.PIPE


# ---- what tests use


class Process:
    """A script under way, with what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, ended: socket.socket, out: IO[str] | None, err: IO[str] | None) -> None:
        self.pid, self.stdout, self.stderr = pid, out, err
        self.returncode: int | None = None
        self._ended = ended

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, minus the signal's number where one ended it."""
        if self.returncode is None:
            self._ended.settimeout(timeout)
            try:
                self.returncode = _number(self._ended)
            except TimeoutError:
                self.send_signal(signal.SIGKILL)
                self._ended.close()
                raise subprocess.TimeoutExpired(f"warm process {self.pid}", timeout or 0) from None
            self._ended.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it prints until it ends, and its errors."""
        texts = ["", ""]

        def read(place: int, pipe: IO[str]) -> None:
            with pipe:
                texts[place] = pipe.read()

        pipes = [(place, pipe) for place, pipe in enumerate((self.stdout, self.stderr)) if pipe is not None]
        readers = [Thread(target=read, args=each) for each in pipes]
        for reader in readers:
            reader.start()
        try:
            self.wait(timeout)
        finally:
            for reader in readers:
                reader.join()
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        """While it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def start(*arguments: object, stdout: Any = PIPE, cwd: Any = None, **variables: object) -> Any:
    """A `Process` of what would follow `python`: a script, or -c and a program, or -m and a module, and arguments.

    stdout: a file or PIPE. variables: of the environment, beside those that there are.
    """
    early = [name for name in variables if name.startswith(READ_AT_START)]
    assert not early, f"{early}: read as Python starts, so take in_process"
    given = [str(argument) for argument in arguments]
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    if not hasattr(os, "fork"):
        environment["PYTHONPATH"] = os.pathsep.join(FOUND)
        return subprocess.Popen(
            [sys.executable, *given], env=environment, stdout=stdout, stderr=PIPE, text=True, cwd=cwd
        )
    out = os.pipe() if stdout is PIPE else (None, os.dup(stdout if isinstance(stdout, int) else stdout.fileno()))
    err, (ended, told), nothing = os.pipe(), socket.socketpair(), os.open(os.devnull, os.O_RDONLY)
    request = json.dumps([given, environment, str(cwd or os.getcwd())]).encode()
    passed = [nothing, out[1], err[1], told.fileno()]
    socket.send_fds(_server(), [struct.pack("<q", len(request))], passed)
    _server().sendall(request)
    for each in (nothing, out[1], err[1]):
        os.close(each)
    told.close()
    return Process(_number(ended), ended, None if out[0] is None else os.fdopen(out[0]), os.fdopen(err[0]))


def run(*arguments: object, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a script does until it ends; options as for `start`."""
    process = start(*arguments, **options)
    out, err = process.communicate(timeout)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def output(*arguments: object, **options: Any) -> str:
    """What a script prints that must end well."""
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _server() -> socket.socket:
    """The way to the server of this process, which ends with it."""
    mine, its = socket.socketpair()
    command, environment = [sys.executable, __file__, str(its.fileno())], {**os.environ, "PYTHONPATH": FOUND[0]}
    server = subprocess.Popen(command, pass_fds=[its.fileno()], env=environment, start_new_session=True)
    its.close()

    def end() -> None:
        mine.close()
        server.wait()

    atexit.register(end)
    return mine


def _number(way: socket.socket) -> int:
    return struct.unpack("<q", _bytes(way, 8))[0]


def _bytes(way: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = way.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found


# ---- the server


def next_request(way: socket.socket) -> tuple[list[str], Mapping[str, str], str]:
    """Returns in a child of each request, which has the streams asked for; the server itself ends with its parent."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        head, passed, _, _ = socket.recv_fds(way, 8, 4)
        if not head:
            sys.exit()
        request = json.loads(_bytes(way, struct.unpack("<q", head)[0]))
        if not os.fork():
            break
        for each in passed:
            os.close(each)
    way.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told = socket.socket(fileno=passed[3])
    child = os.fork()
    if child:  # which waits for the script
        for each in (0, 1, 2, *passed[:3]):
            os.close(each)
        told.sendall(struct.pack("<q", child))
        told.sendall(struct.pack("<q", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
        os._exit(0)
    told.close()
    for number in range(3):
        os.dup2(passed[number], number)
        os.close(passed[number])
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    return request


def become(arguments: list[str], environment: Mapping[str, str], folder: str) -> None:
    """Run a script as the main module of this process."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    kind, *rest = arguments
    sys.argv = ["-c", *rest[1:]] if kind == "-c" else rest if kind == "-m" else arguments
    sys.path[:1] = ["" if kind.startswith("-") else os.path.dirname(kind), *FOUND[1:]]
    if kind == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind != "-c":
        main.__file__ = kind
    code = rest[0] if kind == "-c" else Path(kind).read_text(encoding="utf-8")
    exec(compile(code, "<string>" if kind == "-c" else kind, "exec"), main.__dict__)


if __name__ == "__main__":
    importlib.import_module("h5py")
    importlib.import_module("singa_lite.snapshots")
    gc.collect()
    gc.freeze()  # else each script would go over all of the package once more as it ends
    become(*next_request(socket.socket(fileno=int(sys.argv[1]))))
