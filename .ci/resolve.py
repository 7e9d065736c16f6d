"""Whether the public index can satisfy all extras of the project that its files name together.

    python .ci/resolve.py

Nothing is installed, and of each package the metadata alone is read. The platform and the index are stated, and wheels
that lie on this machine are left out: they would hide that two packages pin different versions of a third one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Files that tell people, and CI, what to install.
TELLING = ("*.md", "docs/*.md", "benchmarks/*.py", "examples/*.py", ".ci/install")
COMMAND = re.compile(r'pip install [^\n]*?"\.\[([a-z0-9,]+)\]"')
#: How to reach the index, which is kept of pip's settings; a setting that names further packages is not.
KEPT = ("index-url", "cert", "client-cert", "proxy", "trusted-host", "default-timeout", "retries")
SETTING = re.compile(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", re.MULTILINE)
PLATFORMS = [*(f"manylinux_2_{minor}_x86_64" for minor in range(5, 40)), "manylinux2014_x86_64", "linux_x86_64"]
PYTHON = "3.11"


def named_together(root: Path = ROOT) -> set[frozenset[str]]:
    """The extras of each command in the project's files."""
    texts = [path.read_text(encoding="utf-8") for pattern in TELLING for path in sorted(root.glob(pattern))]
    return {frozenset(found.split(",")) for text in texts for found in COMMAND.findall(text)}


def largest(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Those that no other contains: what satisfies a set satisfies its parts."""
    found = set(sets)
    return sorted((one for one in found if not any(one < other for other in found)), key=sorted)


def pip(*arguments: str | Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command of pip, of this Python."""
    command = [sys.executable, "-m", "pip", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    """This one without pip's settings, but for how to reach the index."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    plain["PIP_CONFIG_FILE"] = os.devnull
    listed = pip("config", "list", settings=dict(os.environ)).stdout
    for name, value in SETTING.findall(listed):
        if name in KEPT:
            plain[f"PIP_{name.upper().replace('-', '_')}"] = value
    return plain


def wheel(folder: str, settings: dict[str, str]) -> Path:
    """The project's own. RuntimeError with what pip said if there is none."""
    done = pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".", settings=settings)
    if done.returncode:
        raise RuntimeError(done.stderr)
    (made,) = Path(folder).glob("*.whl")
    return made


def trouble(made: Path, extras: frozenset[str], settings: dict[str, str]) -> str:
    """What pip says against these extras of the wheel; "" if they can be had together."""
    where = ["--target", made.parent / "nothing", "--python-version", PYTHON, "--only-binary", ":all:"]
    where += [word for platform in PLATFORMS for word in ("--platform", platform)]
    how = ["--dry-run", "--ignore-installed", "--quiet", "--use-feature=fast-deps"]
    done = pip("install", *how, *where, f"{made}[{','.join(sorted(extras))}]", settings=settings)
    return done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else ""


def main() -> int:
    """Ask of each, say so; 1 if any cannot be had."""
    settings, failed = environment(), False
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        made = wheel(folder, settings)
        asked = {extras: pool.submit(trouble, made, extras, settings) for extras in largest(named_together())}
        for extras, answer in asked.items():
            why = answer.result()
            print(
                f"{'cannot be had' if why else 'can be had'}: {', '.join(sorted(extras))}\n{why}".rstrip(), flush=True
            )
            failed |= bool(why)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
