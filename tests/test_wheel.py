"""The wheel, built from a copy of the checkout, installed aside and used from another folder."""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from singa_lite.common.machine import INSTRUCTION_SETS
from singa_lite.kernels.loop_kernels.library import NEEDS

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("layers", "snapshots")
#: How the names of compiled files begin, in a wheel.
LOOPS = "singa_lite/kernels/loop_kernels/_loops_"
PACKAGED = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "singa_lite", *MAPPED)

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="this copy has no setup.py, the checkout has")


def run(*command: object, **settings) -> str:
    """Output of a command that must succeed; what it printed is the message if it does not."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def copy_checkout(target: Path, links: bool) -> Path:
    """What is packaged, alone: no output of an earlier build, nothing that could be imported by accident."""
    target.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target)
    for name in MAPPED:
        link = target / "singa_lite" / name
        link.unlink(missing_ok=True)
        if links:
            link.symlink_to(Path("..", name), target_is_directory=True)
    return target


def build_wheel(source: Path, target: Path, **variables: str) -> Path:
    """A wheel of a checkout or source archive, by pip; asks no index where setuptools is new enough."""
    isolation = ["--no-build-isolation"] if _setuptools_version() >= 77 else []
    command = sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "-w", target, source
    run(*command, env={**os.environ, **variables})
    (wheel,) = target.glob("*.whl")
    return wheel


def _setuptools_version() -> int:
    try:
        import setuptools
    except ImportError:
        return 0
    return int(setuptools.__version__.split(".")[0])


def contents(wheel: Path) -> dict[str, bytes]:
    """What a wheel installs, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(copy_checkout(folder / "checkout", links=True), folder)


def wanted_files() -> set[str]:
    """Every source file of the three folders, under its installed name."""
    files = [
        path.relative_to(ROOT)
        for folder in MAPPED
        for kind in ("py", "pyi")
        for path in (ROOT / folder).rglob(f"*.{kind}")
    ]
    mapped = {f"singa_lite/{path.as_posix()}" for path in files}
    core = {
        Path(folder, name).relative_to(ROOT).as_posix()
        for folder, _, names in os.walk(ROOT / "singa_lite")  # not into links
        for name in names
        if name.endswith((".py", ".pyi", ".c", ".h", ".cu", ".cuh", "py.typed"))
    }
    return mapped | core


def compiled_files(names: Iterable[str]) -> set[str]:
    """The files of loops among these, by their levels."""
    return {name.removeprefix(LOOPS).split(".")[0] for name in names if name.startswith(LOOPS)}


def without_compiled(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith(LOOPS)}


def test_each_file_is_in_the_wheel_once_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        counts = Counter(name for name in archive.namelist() if ".dist-info/" not in name)
    assert set(counts.values()) == {1}
    assert without_compiled(counts) == wanted_files()
    assert "singa_lite/py.typed" in counts


def test_a_wheel_has_the_loops_of_each_level_and_serves_every_python(wheel):
    if not (sys.platform == "linux" and platform.machine() == "x86_64" and shutil.which("gcc")):
        pytest.skip("loops for x86-64 are compiled by GCC on Linux; apt install gcc brings it")
    assert compiled_files(contents(wheel)) == {"avx512", "avx2"}
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_without_a_compiler_the_wheel_serves_every_system(tmp_path):
    """All but the loops is there, and it trains: by NumPy, and says so where it is not meant."""
    made = build_wheel(copy_checkout(tmp_path / "checkout", links=True), tmp_path, CC="/no/compiler")
    assert made.name.endswith("-py3-none-any.whl")
    assert set(contents(made)) == wanted_files()
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, made)
    environment = {**os.environ, "PYTHONPATH": str(site), "SINGA_LITE_LOOPS": "off"}
    run(sys.executable, "-W", "error", "-c", TRAIN, site, cwd=tmp_path, env=environment)


def test_what_cannot_be_compiled_is_said_once(tmp_path):
    source = copy_checkout(tmp_path / "checkout", links=True)
    command = sys.executable, "setup.py", "--quiet", "build"
    log = subprocess.run(command, cwd=source, env={**os.environ, "CC": "/no/compiler"}, capture_output=True, text=True)
    assert log.returncode == 0
    assert log.stderr.count("singa_lite: no loops in C for avx512 and avx2, as the compiler failed") == 1


def test_the_compiler_is_given_the_instruction_sets_that_the_package_asks_the_processor_for():
    """Code of others would end the process on a processor without them."""
    names = {"AVX2", "LEVELS"}
    lines = [
        node
        for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names
    ]
    stated: dict[str, dict[str, tuple[str, ...]]] = {}
    exec(compile(ast.Module(lines, []), "setup.py", "exec"), stated)
    assert {level: set(sets) for level, sets in stated["LEVELS"].items()} == {
        level: needed for level, needed in NEEDS.items() if needed
    }
    assert set().union(*NEEDS.values()) <= set(INSTRUCTION_SETS)


def test_one_version_stands_everywhere(wheel):
    """In the wheel's name, the package and the first heading of the changelog."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', contents(wheel)["singa_lite/__init__.py"].decode(), re.MULTILINE)
    assert wheel.name.split("-")[1] == version
    changelog = ROOT / "CHANGELOG.md"
    if changelog.is_file():
        assert re.findall(r"^## ([\d.]+)", changelog.read_text(encoding="utf-8"), re.MULTILINE)[0] == version


def tracked_files() -> list[Path]:
    """The files of the repository; none in a copy that is no repository of its own."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return []
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    return [Path(name) for name in names if name and os.path.lexists(ROOT / name)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """The source archive of all tracked files, or of what is packaged, without links."""
    source = copy_checkout(tmp_path_factory.mktemp("archive") / "checkout", links=False)
    for name in tracked_files():
        if not (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "setup.py", "--quiet", "sdist", cwd=source)
    (made,) = (source / "dist").glob("*.tar.gz")
    return made


def unpacked(archive: Path, target: Path) -> Path:
    """The folder that the archive holds."""
    shutil.unpack_archive(archive, target, filter="data")
    (found,) = target.iterdir()
    return found


def test_the_source_archive_has_every_file_of_the_repository(archive, tmp_path):
    """Links too, and modes: .ci/run is run from there. The build system adds metadata, and no other file."""
    wanted = {name.as_posix() for name in tracked_files()}
    if not wanted:
        pytest.skip("this copy is no repository of git, a clone is")
    folder = unpacked(archive, tmp_path)
    here = [Path(above) / name for above, folders, names in os.walk(folder) for name in [*folders, *names]]
    files = {path.relative_to(folder).as_posix() for path in here if path.is_symlink() or path.is_file()}
    added = {name for name in files - wanted if not name.startswith("singa_lite.egg-info/")}
    assert (wanted - files, added) == (set(), {"PKG-INFO", "setup.cfg"})
    assert os.access(folder / ".ci" / "run", os.X_OK)


def test_the_unpacked_archive_gives_the_same_wheel_and_passes_tests(archive, wheel, tmp_path):
    folder = unpacked(archive, tmp_path / "source")
    made = build_wheel(folder, tmp_path)
    assert contents(made) == contents(wheel)
    if not (folder / "tests").is_dir():
        return  # made from a copy that is no repository, of what is packaged
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, made)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    chosen = ("tests/test_ci.py", "tests/test_manual.py", "tests/test_sizes.py", "tests/snapshots/test_earlier.py")
    run(sys.executable, "-m", "pytest", "-q", *chosen, cwd=folder, env={**environment, "PYTHONPATH": str(site)})


TRAIN = """
import sys
from pathlib import Path

import numpy as np
import singa_lite
from singa_lite import FeedForwardNet, layers, loss, metric, optimizer, snapshots

site = Path(sys.argv[1]).resolve()
for module in (singa_lite, layers, snapshots):
    found = Path(module.__file__)
    if found != found.resolve() or site not in found.parents:
        sys.exit(f"wanted {module.__name__} inside {site}, received {found}")


def build():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy())
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(3, 8, 6)))
    net.add(layers.Activation("relu"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", num_output=5))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    return net


rng = np.random.default_rng(0)
x = rng.standard_normal((7, 3, 8, 6)).astype(np.float32)
y = rng.integers(0, 5, 7).astype(np.int32)
net = build()
losses = [float(net.train_one_batch(x, y)[0]) for _ in range(2)]
if not losses[1] < losses[0]:
    sys.exit(f"wanted the second step's loss below the first's, received {losses}")
net.save("net.h5")
other = build()
other.load("net.h5")
np.testing.assert_array_equal(np.asarray(other.predict(x)), np.asarray(net.predict(x)))
"""


def test_installed_wheel_trains_saves_and_loads(wheel, tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run(sys.executable, "-W", "error", "-W", "ignore:the loops in C", "-c", TRAIN, site, cwd=elsewhere, env=environment)
