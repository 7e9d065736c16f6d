"""Packaging of singa_lite: what is installed, and from which folder.

`layers/` and `snapshots/` lie at the top of the repository and are installed as `singa_lite.layers` and
`singa_lite.snapshots`. The links of the same names inside `singa_lite/` only serve an uninstalled
checkout. They are left out of the search for packages: with or without them, the same wheel is built.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from copy import copy
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import BaseError, CCompilerError, CompileError

ROOT = Path(__file__).resolve().parent
#: The oneDNN library alone, with GCC's OpenMP; other systems and processors have no such wheel.
ONEDNN = "onednn-cpu-gomp>=2023.2; sys_platform == 'linux' and platform_machine == 'x86_64'"
#: CUDA 13.0, which driver 580 brings: newer components want newer drivers. One by one, as CuPy's own list of CUDA
#: parts names some that are never used here.
CUDA13 = [
    "cupy-cuda13x>=14.2,<15",
    "nvidia-cuda-nvrtc==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cublas==13.1.*",
]
#: The last frontend without 190 MB of further packages. cuDNN from the version that our plans were first made with to
#: the last one that a PyTorch for CUDA 13.0 pins (2.13: 9.20, 2.14: 9.24), so that both fit into one environment.
CUDNN13 = ["nvidia-cudnn-frontend>=1.28,<1.29", "nvidia-cudnn-cu13>=9.19,<9.25"]
#: A static check of PTX for races; its wheels hold a program.
SENTRYWARD = "sentryward>=0.1.1,<0.2; sys_platform == 'linux' and platform_machine == 'x86_64'"
#: Sums between GPUs: from the first that CuPy's wheel takes on, whichever a PyTorch in the same environment pins.
NCCL13 = ["nvidia-nccl-cu13>=2.27.7,<3"]
#: What reads image folders, CSV and Parquet.
DATA = ["pillow>=10.3", "pandas>=2.2", "pyarrow>=16"]
#: Files of language models: blocks of quantised weights, tokenizers, chat templates.
LM = ["gguf>=0.17", "tokenizers>=0.21", "jinja2>=3.1.5"]
#: What net.export writes by.
ONNX = ["onnx>=1.18"]
#: The loops in C, relative to this file.
LOOPS = Path("singa_lite", "kernels", "loop_kernels")
#: Instruction sets, by the names that Linux and GCC give them.
AVX2 = ("avx2", "fma", "f16c")
#: {compiled file: instruction sets that its code needs}; `library.py` loads a file where the processor has them.
LEVELS = {"avx512": (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl"), "avx2": AVX2}
#: {compiled file: further options}.
WIDE = {"avx512": ["-mprefer-vector-width=512"]}
#: Options for all of them.
CFLAGS = ["-std=gnu11", "-O3", "-g0", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=default"]
#: What is said where there is no compiler.
NOT_COMPILED = """
singa_lite: no loops in C for {levels}, as the compiler failed (its messages are above): {compiler}
    All works without them. Training takes longer, as NumPy does their work.
    To change that: install GCC with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev), then install singa_lite again.
"""
CORE = "singa_lite"
MAPPED = ("layers", "snapshots")


class SourceArchive(sdist):
    """The command that makes the source archive, with the links that an uninstalled checkout has."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copies the files, and adds the links, where the system has such."""
        super().make_release_tree(base_dir, files)
        for name in MAPPED:
            with suppress(OSError):
                Path(base_dir, CORE, name).symlink_to(Path("..", name), target_is_directory=True)


class Loops(build_ext):
    """The command that compiles the loops, or says once why it cannot."""

    def finalize_options(self) -> None:
        """All levels are compiled at the same time."""
        super().finalize_options()
        self.parallel = self.parallel or True

    def run(self) -> None:
        """Compiles what can be compiled, and says what was left out."""
        self.failed: list[str] = []
        super().run()
        if self.failed:
            compiler = getattr(self.compiler, "compiler_so", ["none found"])[0]
            print(NOT_COMPILED.format(levels=" and ".join(sorted(self.failed)), compiler=compiler), file=sys.stderr)

    def build_extension(self, ext: Extension) -> None:
        """Compiles one file of loops; where that fails it is left out."""
        level, own = ext.name.rpartition("_")[2], copy(self)
        own.build_temp = str(Path(self.build_temp, level))  # object files of one level must not be linked into another
        try:
            super(Loops, own).build_extension(ext)
        except (BaseError, CCompilerError, CompileError, OSError) as error:
            self.failed.append(level)
            print(error, file=sys.stderr)


class Wheel(bdist_wheel):
    """The command that makes a wheel: for this system where loops were compiled, else for any."""

    def run(self) -> None:
        """Compiles first, as the name of the wheel depends on what there is."""
        self.run_command("build")
        compile_loops, wanted = self.get_finalized_command("build_ext"), self.distribution.ext_modules
        made = [one for one in wanted or () if os.path.exists(compile_loops.get_ext_fullpath(one.name))]
        self.distribution.ext_modules = made
        self.root_is_pure = not made
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tag: any Python 3, as the loops use nothing of it, and this system or any."""
        return ("py3", "none", super().get_tag()[2])


def packages() -> list[str]:
    """All packages by their installed names, each once."""
    links = [pattern for name in MAPPED for pattern in (f"{CORE}.{name}", f"{CORE}.{name}.*")]
    found = find_packages(str(ROOT), include=[CORE, f"{CORE}.*"], exclude=links)
    for name in MAPPED:
        found += [f"{CORE}.{package}" for package in find_packages(str(ROOT), include=[name, f"{name}.*"])]
    return found


def compiled_loops() -> list[Extension]:
    """The loops for each kind of processor. They use nothing of Python: one file serves all versions of it."""
    if sys.platform != "linux":
        return []
    levels = LEVELS if platform.machine() == "x86_64" else {"plain": ()}
    sources, headers = (sorted((ROOT / LOOPS / "source").glob(f"*.{kind}")) for kind in "ch")
    stamp = sha256(b"".join(header.read_bytes() for header in headers)).hexdigest()
    return [
        Extension(
            ".".join((*LOOPS.parts, f"_loops_{level}")),
            [str(path.relative_to(ROOT)) for path in sources],
            depends=[str(path.relative_to(ROOT)) for path in headers],
            define_macros=[("HEADERS", f'"{stamp}"')],
            extra_compile_args=[*CFLAGS, *(f"-m{name}" for name in needed), *WIDE.get(level, [])],
            extra_link_args=["-fopenmp"],
            libraries=["m"],
            py_limited_api=True,
            optional=True,
        )
        for level, needed in levels.items()
    ]


def long_description() -> str:
    """The README, or nothing where it is missing."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


setup(
    name="singa-lite",
    version="0.2.0",
    description="Trains neural nets in little memory, and tells the peak before the first step",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    keywords=["deep learning", "training", "memory planning", "numpy", "cupy"],
    cmdclass={"sdist": SourceArchive, "build_ext": Loops, "bdist_wheel": Wheel},
    ext_modules=compiled_loops(),
    packages=packages(),
    package_dir={CORE: CORE, **{f"{CORE}.{name}": name for name in MAPPED}},
    package_data={CORE: ["py.typed"], "": ["*.cu", "*.cuh", "*.pyi"], ".".join(LOOPS.parts): ["source/*.[ch]"]},
    include_package_data=False,
    zip_safe=False,
    python_requires=">=3.11",
    install_requires=["numpy>=2.0", "h5py>=3.11", "threadpoolctl>=3.5", "tqdm>=4.62"],
    extras_require={
        "test": [
            "pytest>=8.2",
            "pytest-xdist>=3.6",
            "safetensors>=0.5",
            "hypothesis>=6.100",
            "protobuf>=5",
            "ml_dtypes>=0.5",
            "matplotlib>=3.9",
            "plotly>=6",
            "scikit-learn>=1.5",
            "scipy>=1.13",
            "setuptools>=77",
            *DATA,
            *LM,
            *ONNX,
            "onnxruntime>=1.22",
            "skl2onnx>=1.19",
            ONEDNN,
        ],
        "report": ["plotly>=6"],
        "certificate": ["scipy>=1.13"],
        "onnx": ONNX,
        "data": DATA,
        "lm": LM,
        "tensorboard": ["tensorboard>=2.18"],
        "examples": ["scikit-learn>=1.5", "matplotlib>=3.9"],
        "peer": ["torch>=2.13", "keras>=3.12", "transformers>=5", "peft>=0.18"],
        "dev": ["ruff>=0.17,<0.18", "mypy>=2.4,<2.5", "build>=1.2", "pytest-cov>=6"],
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10", "mkdocstrings[python]>=1,<2"],
        "onednn": [ONEDNN],
        "mpi": ["mpi4py>=4.1", "mpich>=4.3"],
        "cuda13": CUDA13,
        "cudnn13": CUDNN13,
        "nccl13": NCCL13,
        "cudatest": [*CUDA13, *CUDNN13, "nvidia-cuda-crt==13.0.*", SENTRYWARD],
    },
)
