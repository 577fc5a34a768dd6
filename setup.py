"""Builds the optional kernels: each src/cairnmq/**/_NAME.pyx beside its pure twin NAME.py; else see pyproject.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
CORES = os.cpu_count() or 1


def kernels() -> list[Extension]:
    """Extensions to try; a failed compile leaves the pure twin in charge, so each is optional."""
    sources = sorted((ROOT / "src" / "cairnmq").rglob("_*.pyx"))
    for source in sources:
        twin = source.with_name(source.stem.removeprefix("_") + ".py")
        if not twin.exists():
            sys.exit(f"{source} has no pure twin {twin.name}")
    if not sources or os.environ.get("CAIRNMQ_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("kernels: no Cython, so this install is pure Python", file=sys.stderr)
        return []
    extensions = [
        Extension(
            ".".join(source.relative_to(ROOT / "src").with_suffix("").parts),
            [str(source.relative_to(ROOT))],
            extra_compile_args=["-O2", "-g0"],  # nobody debugs the C code, and without -g it compiles faster
        )
        for source in sources
    ]
    built: list[Extension] = cythonize(extensions, language_level=3, build_dir="build/cython", nthreads=CORES)
    for extension in built:
        # Set here because cythonize does not hand it on; setuptools then takes a failed compile as a warning.
        extension.optional = True
    return built


setup(ext_modules=kernels(), options={"build_ext": {"parallel": CORES}})
