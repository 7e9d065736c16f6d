"""The compiled loops as files: which one is loaded, types of arguments, forks, threads, equal bits."""

from __future__ import annotations

import ctypes as c
import shutil
from collections.abc import Callable
from math import erfc, exp, log1p, pi, sqrt
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from in_process import output, start
from singa_lite.common.machine import instruction_sets
from singa_lite.errors import DeviceError
from singa_lite.kernels.choice import find_onednn
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels import library, loops, routine
from singa_lite.kernels.loop_kernels.library import NEEDS, Box, Extents, Library, Rows, argument_types
from singa_lite.kernels.loop_kernels.routine import BoxView, LoopStep, RowsView
from singa_lite.kernels.numpy_kernels import NUMPY

FILES = {path.name.removeprefix("_loops_").split(".")[0]: path for path in library.FOLDER.glob("_loops_*")}
LEVELS = [level for level in FILES if NEEDS[level] <= {*instruction_sets()}]
needs_loops = pytest.mark.skipif(not LEVELS, reason="loops are not compiled; python setup.py build_ext --inplace")
needs_training = pytest.mark.skipif(
    not LEVELS or isinstance(find_onednn(), str),
    reason=f"loops stand below oneDNN; {find_onednn()}; pip install onednn-cpu-gomp",
)
X = TensorSpec((7, 5), np.dtype("f"), (20, 4))


# --- headers and arguments ------------------------------------------------------------------------------------


def test_types_of_arguments_come_from_the_headers():
    text = dedent("""
        /* A loop (with a comment that has brackets); */
        typedef struct { void *at; } Rows;
        void first(Rows x, const float *gamma, void *scratch, int64_t rows, double epsilon, float low);
        void second(Box x,
                    Box y, Extents extents);
        static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
        """)
    wanted = (Rows, c.c_void_p, c.c_void_p, c.c_int64, c.c_double, c.c_float)
    assert argument_types(text) == {"first": wanted, "second": (Box, Box, Extents)}


def test_a_type_that_is_not_known_is_named():
    with pytest.raises(KeyError, match="char"):
        argument_types("void first(char letter);")


@needs_loops
def test_each_function_of_the_headers_is_in_each_file():
    for level in LEVELS:
        found = Library(FILES[level], level)
        for name in found.types:
            assert found.function(name).restype is None


BINDING = routine.Addresses({}, None, None)
MATRIX, BOX = RowsView(X, 5), BoxView(X, (0, 0, 0, 0, 5, 1))


@needs_loops
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((BOX, BOX), "wanted 3 arguments, received 2"),
        ((BOX, BOX, (1,) * 6, 3), "wanted 3 arguments, received 4"),
        ((MATRIX, BOX, (1,) * 6), "wanted Box, received RowsView"),
        ((1.5, BOX, (1,) * 6), "wanted Box, received 1.5"),
        ((None, None, None), "wanted Extents, received None"),
        ((None, None, X), "wanted Extents, received <"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_that_do_not_fit_are_named_before_the_call(arguments: Any, says: str):
    step = LoopStep(Library(FILES[LEVELS[0]]), "copy", arguments)
    with pytest.raises(TypeError, match=f"loop copy: {says}"):
        step.bind(BINDING)


# --- which file -----------------------------------------------------------------------------------------------


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    """What `find` gives, with the stated files, flags of the processor and SINGA_LITE_LOOPS."""
    shutil.copytree(library.FOLDER / "source", tmp_path / "source")
    monkeypatch.setattr(library, "FOLDER", tmp_path)

    def find(files: tuple[str, ...], flags: set[str], wanted: str = "") -> Library | str:
        for level in files:
            if not (tmp_path / FILES[level].name).exists():  # else it is loaded, and must not be written over
                shutil.copy(FILES[level], tmp_path)
        monkeypatch.setattr(library, "instruction_sets", lambda: tuple(flags))
        monkeypatch.setenv("SINGA_LITE_LOOPS", wanted)
        return library.find.__wrapped__()

    return find


@pytest.mark.skipif(len(LEVELS) < 2, reason="a processor with one level of loops; python setup.py build_ext --inplace")
def test_the_fastest_file_that_the_processor_has_instructions_for(chosen):
    both = ("avx512", "avx2")
    assert chosen(both, NEEDS["avx512"]).level == "avx512"
    assert chosen(both, NEEDS["avx2"]).level == "avx2"
    assert chosen(both, NEEDS["avx512"] - {"avx512dq"}).level == "avx2"
    assert chosen(both, NEEDS["avx512"], wanted="avx2").level == "avx2"
    assert "f16c" in chosen(both, {"avx2", "fma"})
    assert chosen(both, NEEDS["avx512"], wanted="off") == ""


@needs_loops
def test_a_level_that_is_asked_for_and_cannot_be_is_an_error(chosen):
    with pytest.raises(DeviceError, match=r"SINGA_LITE_LOOPS.*avx512.*processor lacks avx512bw"):
        chosen(("avx512",), NEEDS["avx2"], wanted="avx512")
    with pytest.raises(DeviceError, match=r"SINGA_LITE_LOOPS: wanted the loops for plain, but .*not compiled"):
        chosen((), NEEDS["avx512"], wanted="plain")
    with pytest.raises(DeviceError, match=r"SINGA_LITE_LOOPS: wanted one of .*'off'.*, received 'fast'"):
        chosen((), NEEDS["avx512"], wanted="fast")


def test_without_a_file_the_next_set_serves(chosen, monkeypatch):
    assert "not compiled" in chosen((), NEEDS["avx512"])
    monkeypatch.setattr("singa_lite.kernels.loop_kernels.load", lambda: None)
    assert loops(NUMPY) is NUMPY


@needs_loops
def test_a_file_that_is_none_or_is_older_than_the_headers_is_left_alone(chosen, tmp_path):
    level = LEVELS[0]
    (tmp_path / "source" / "a_new_one.h").write_text("void later(int64_t rows);\n")
    assert "wanted loops compiled from the headers beside it" in chosen((level,), NEEDS[level])
    (tmp_path / f"_loops_{level}.abi3.so").unlink()
    (tmp_path / f"_loops_{level}.so").write_text("not a library")
    assert f"_loops_{level}.so" in chosen((), NEEDS[level])


# The device's kernels three times; warnings and the names of the chain of sets.
CHAIN = """
import warnings
{before}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from singa_lite import device
    kernels = [device.new_cpu().kernels for _ in range(3)][0]
print(*(warning.message for warning in caught), sep=" | ")
while kernels is not None:
    print(kernels.name)
    kernels = kernels.fallback
"""
NO_FILE = "from singa_lite.kernels.loop_kernels import library; library.FOLDER = library.FOLDER.parent"


@needs_training
def test_the_chain_of_sets_and_what_is_said_once_without_loops():
    said, *chain = output(CHAIN.format(before=""), SINGA_LITE_LOOPS="").splitlines()
    assert (said, chain) == ("", ["onednn", "loops", "numpy"])
    said, *chain = output(CHAIN.format(before=NO_FILE), SINGA_LITE_LOOPS="").splitlines()
    assert chain == ["onednn", "numpy"]
    assert said.count("SINGA_LITE_LOOPS=off") == said.count("build_ext --inplace") == 1
    said, *chain = output(CHAIN.format(before=NO_FILE), SINGA_LITE_LOOPS="off").splitlines()
    assert (said, chain) == ("", ["onednn", "numpy"])
    failed = start("-c", CHAIN.format(before=""), SINGA_LITE_LOOPS="fast")
    assert failed.returncode == 1 and "DeviceError: SINGA_LITE_LOOPS: " in failed.stderr


# --- threads and forks ----------------------------------------------------------------------------------------

# A net with many kinds of kernels trains; what it has learnt, as a hash.
TRAIN = """
import hashlib
import numpy as np
from singa_lite import FeedForwardNet, device, layers, loss, optimizer

def trained(kernels=None):
    on = device.new_cpu()
    on.kernels = kernels or on.kernels
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=3)
    net.add(layers.Conv2D("c", 32, 3, use_bias=False, input_sample_shape=(3, 24, 24)))
    net.add(layers.BatchNormalization("b"))
    net.add(layers.Activation("r", "relu"))
    net.add(layers.MaxPooling2D("p", 2, 2))
    net.add(layers.Activation("g", "gelu"))
    net.add(layers.Dropout("d", 0.2))
    net.add(layers.Flatten("f"))
    net.add(layers.Dense("h", 1100))
    net.add(layers.LayerNormalization("n"))
    net.add(layers.Activation("t", "tanh"))
    net.add(layers.Dense("o", 7))
    net.compile(optimizer.AdamW(lr=0.01))
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((33, 3, 24, 24), dtype=np.float32), rng.integers(0, 7, 33)
    for _ in range(2):
        net.train_one_batch(x, y)
    values = hashlib.sha256()
    for value in net.param_values():
        values.update(np.asarray(value).tobytes())
    return values.hexdigest()
"""
FORK = """
import os
wanted = trained()
child = os.fork()
if not child:
    os._exit(0 if trained() == wanted else 3)
print(os.waitpid(child, 0)[1], trained() == wanted)
"""
TWO_THREADS = """
import threading
wanted, found = trained(), []
workers = [threading.Thread(target=lambda: found.extend(trained() for _ in range(3))) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join(60)
print(found == [wanted] * 6)
"""


@needs_training
def test_a_forked_child_trains_after_its_parent_used_all_threads():
    assert output(TRAIN + FORK, SINGA_LITE_THREADS=2, SINGA_LITE_LOOPS="").split() == ["0", "True"]


@needs_training
def test_two_threads_train_at_the_same_time_with_equal_bits():
    assert output(TRAIN + TWO_THREADS, SINGA_LITE_THREADS=2, SINGA_LITE_LOOPS="").split() == ["True"]


# The loops above NumPy's kernels alone, as products of oneDNN may depend on the number of threads.
OVER_NUMPY = """
from singa_lite.kernels.choice import _beside_openmp
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.numpy_kernels import NUMPY
print(trained(loops(_beside_openmp(NUMPY))))
"""


@needs_loops
def test_results_have_the_same_bits_for_every_number_of_threads():
    script = TRAIN + OVER_NUMPY
    set_to = {"OPENBLAS_NUM_THREADS": 1, "SINGA_LITE_LOOPS": ""}
    results = {output(script, OMP_NUM_THREADS=number, **set_to) for number in (1, 2, 3)}
    assert len(results) == 1


# --- values ---------------------------------------------------------------------------------------------------


def normal_tail(x: float) -> float:
    """The standard normal distribution below x."""
    return erfc(-x / sqrt(2)) / 2


def density(x: float) -> float:
    """Of the standard normal distribution."""
    return exp(-x * x / 2) / sqrt(2 * pi)


#: {kernel: numbers from and to, the function of float64, and its relative error, which grows with a power's exponent}.
TAILS: dict[str, tuple[float, float, Callable[[float], float], float]] = {
    "gelu": (-14.0, -4.0, lambda x: x * normal_tail(x), 2e-5),
    "gelu_derivative": (-14.0, -4.0, lambda x: normal_tail(x) + x * density(x), 2e-5),
    "sigmoid": (-103.0, -20.0, lambda x: exp(x) / (1 + exp(x)), 1e-6),
    "gelu_tanh": (-10.0, -3.0, lambda x: x / (1 + exp(-sqrt(8 / pi) * (x + 0.044715 * x**3))), 2e-5),
    "silu_derivative": (-80.0, -20.0, lambda x: exp(x) / (1 + exp(x)) * (1 + x / (1 + exp(x))), 1e-6),
    "softplus": (-103.0, -20.0, lambda x: log1p(exp(x)), 1e-6),
}


@needs_loops
@pytest.mark.parametrize("name", TAILS)
def test_tails_keep_their_digits_down_to_the_smallest_numbers(name):
    first, last, function, error = TAILS[name]
    x = np.linspace(first, last, 3001, dtype=np.float32)
    y, given = np.full_like(x, np.nan), [np.ones_like(x), x] if name.endswith("_derivative") else [x]
    loops(NUMPY).prepare(name, (*given, y), None, {})()
    least = 2 * float(np.finfo(np.float32).smallest_subnormal)
    np.testing.assert_allclose(y, [function(float(one)) for one in x], rtol=error, atol=least)
