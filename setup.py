"""Packaging of singa_lite: what is installed, and from which folder.

`layers/` and `snapshots/` lie at the top of the repository and are installed as `singa_lite.layers` and
`singa_lite.snapshots`. The links of the same names inside `singa_lite/` only serve an uninstalled
checkout. They are left out of the search for packages: with or without them, the same wheel is built.
"""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.sdist import sdist

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
#: The loops in C, relative to this file, and how each file of code is compiled: {name: flags for its processors}.
LOOPS = Path("singa_lite", "kernels", "loop_kernels")
LEVELS = {"avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"], "avx2": ["-march=x86-64-v3"]}
CFLAGS = ["-std=gnu11", "-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=default"]
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


def packages() -> list[str]:
    """All packages by their installed names, each once."""
    links = [pattern for name in MAPPED for pattern in (f"{CORE}.{name}", f"{CORE}.{name}.*")]
    found = find_packages(str(ROOT), include=[CORE, f"{CORE}.*"], exclude=links)
    for name in MAPPED:
        found += [f"{CORE}.{package}" for package in find_packages(str(ROOT), include=[name, f"{name}.*"])]
    return found


def compiled_loops() -> list[Extension]:
    """The loops for each kind of processor. Where there is no C compiler with OpenMP they are left out."""
    if sys.platform != "linux":
        return []
    levels = LEVELS if platform.machine() == "x86_64" else {"plain": []}
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / LOOPS / "source").glob("*.c"))
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / LOOPS / "source").glob("*.h"))
    return [
        Extension(
            ".".join((*LOOPS.parts, f"_loops_{level}")),
            sources,
            depends=headers,
            extra_compile_args=[*CFLAGS, *flags],
            extra_link_args=["-fopenmp"],
            libraries=["m"],
            py_limited_api=True,
            optional=True,
        )
        for level, flags in levels.items()
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
    cmdclass={"sdist": SourceArchive},
    ext_modules=compiled_loops(),
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    packages=packages(),
    package_dir={CORE: CORE, **{f"{CORE}.{name}": name for name in MAPPED}},
    package_data={CORE: ["py.typed"], "": ["*.c", "*.h", "*.cu", "*.cuh", "*.pyi"]},
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
            "setuptools>=77",
            *DATA,
            ONEDNN,
        ],
        "report": ["plotly>=6"],
        "data": DATA,
        "tensorboard": ["tensorboard>=2.18"],
        "examples": ["scikit-learn>=1.5", "matplotlib>=3.9"],
        "peer": ["torch>=2.13", "keras>=3.12", "transformers>=5"],
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
