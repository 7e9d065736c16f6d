"""Settings for all tests.

Each process uses one BLAS thread: the matrices of tests are small, and threads that wait for each other cost more than
they compute. Bytecode is kept. Long files run first, so that no worker waits for another one at the end. A skipped test
must say what is missing and what brings it (`skips.py`), or it fails. Ctrl-C works in tests that a shell started in the
background.
"""

import gc
import os
import signal
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import skips

# Before NumPy is imported, which reads them once; scripts that tests start inherit them.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
user = getattr(os, "getuid", int)()
os.environ.setdefault("CUPY_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"singa_lite_cupy_{user}"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Kernels go by the built-in rule, whatever this user has measured.
os.environ["SINGA_LITE_TUNING"] = "off"

# Else each worker compiles all tests anew, and each of the many processes that tests start all of the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


#: Files that take long. pytest-xdist would begin with those of many tests, and one worker would wait for the other.
LONG = (
    "test_benchmarks.py",
    "test_examples.py",
    "test_kernel_layouts.py",
    "test_kernels.py",
    "test_memory_budget.py",
    "test_modes.py",
    "test_batch_plan.py",
    "test_peer_nets.py",
    "test_interrupts.py",
    "test_random_graphs.py",
    "test_memory_promise.py",
    "test_budget_answers.py",
    "test_cuda_values.py",
    "test_parallel_training.py",
    "test_parallel_fit.py",
    "test_parallel_faults.py",
    "test_pool.py",
    "test_write_errors.py",
    "test_hostile_files.py",
    "test_offload.py",
    "test_changed_settings.py",
    "test_check_rewrites.py",
    "test_mixture.py",
    "test_wheel.py",
)


def pytest_addoption(parser):
    """Options of CI: its two environments share the suite, and each run takes a part of the nightly tests."""
    parser.addoption("--write-passed", metavar="FILE", help="write the tests that passed there, a line each")
    parser.addoption("--passed-before", metavar="FILE", help="leave out the tests that are in this file")
    parser.addoption("--twentieth", metavar="HASH", help="run one test of twenty, chosen by this hexadecimal number")


class PassedTests:
    """Writes the ids of the tests that passed to a file at the end of the session."""

    def __init__(self, path):
        self.path, self.passed = path, []

    def pytest_runtest_logreport(self, report):
        """One of the three reports of a test."""
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid)

    def pytest_sessionfinish(self):
        """All reports are there."""
        Path(self.path).write_text("\n".join(self.passed), encoding="utf-8")


def pytest_configure(config):
    """Leave the order of files to the next function. No example of hypothesis fails because others use the machine."""
    if config.option.write_passed and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PassedTests(config.option.write_passed))
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")
    if hasattr(config.option, "loadscopereorder"):  # where pytest-xdist is
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    """For workers: files that take long first, then those of many tests, so that the last ones are short."""
    if config.option.passed_before:
        passed = set(Path(config.option.passed_before).read_text(encoding="utf-8").splitlines())
        _keep(config, items, lambda item: item.nodeid not in passed)
    if config.option.twentieth:
        part = int(config.option.twentieth, 16) % 20
        _keep(config, items, lambda item: zlib.crc32(item.nodeid.encode()) % 20 == part)
    if hasattr(config, "workerinput"):
        counts = Counter(item.path for item in items)
        ranks = {name: rank for rank, name in enumerate(LONG)}
        items.sort(key=lambda item: (ranks.get(item.path.name, len(LONG)), -counts[item.path]))


def pytest_collection_finish():
    """Keep all collected tests, some 400,000 objects, out of each later gc.collect(), which many tests call."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _modules_are_found_as_before(monkeypatch):
    """Also in a process that a test starts with what its own process imports from."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture(autouse=True)
def _seeds_begin_anew():
    """No test depends on how many seeds the tests before it took."""
    from singa_lite import device  # after the environment is set, see above

    device.cpu().set_random_seed(0)


def pytest_make_parametrize_id(val):
    """A function's own name: with its address, as pytest has it, no two processes would have the same tests."""
    return getattr(val, "__name__", None) if callable(val) else None


def _refuse_silence(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a report of what was skipped for a reason that helps nobody."""
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):  # an expected failure has none
        path, line, reason = report.longrepr
        wrong = skips.complaint(reason.removeprefix("Skipped: "))
        if wrong:
            report.outcome, report.longrepr = "failed", f"{path}:{line}: {wrong}"


def _keep(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]) -> None:
    """Deselect the other tests."""
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Of a test, its fixtures included."""
    report = yield
    _refuse_silence(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Of a module as a whole."""
    report = yield
    _refuse_silence(report)
    return report
