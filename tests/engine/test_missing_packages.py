"""Distribution packages that a failed build lacks."""

import pytest

from bakehouse.engine.buildkit_errors import advice


@pytest.mark.parametrize(
    ("line", "what", "package"),
    [
        ("a.c:9:10: fatal error: ffi.h: No such file or directory", "header `ffi.h`", "libffi-dev"),
        ("x.c:1: fatal error: lmdb.h: No such file or directory", "header `lmdb.h`", "liblmdb-dev"),
        ("/bin/sh: 1: cmake: not found", "program `cmake`", "cmake"),
        ("bash: line 1: swig: command not found", "program `swig`", "swig"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'git'", "program `git`", "git"),
        ("error: command 'swig' failed: No such file or directory", "program `swig`", "swig"),
        ("error: command 'aarch64-linux-gnu-g++' failed: No such file or directory", "program `g++`", "g++"),
        ("Error: pg_config executable not found.", "program `pg_config`", "libpq-dev"),
        ("make: gfortran: No such file or directory", "program `gfortran`", "gfortran"),
        ("RuntimeError: CMake must be installed to build the extensions: x", "program `cmake`", "cmake"),
        ("error: can't find Rust compiler", "program `rustc`", "rustc"),
        ("CMake Error: could not find Ninja", "program `ninja`", "ninja-build"),
        ("Did not find pkg-config by name 'pkg-config'", "program `pkg-config`", "pkgconf"),
        ("RuntimeError: Please update your CMake to 3.13+ or set HOROVOD_CMAKE", "program `cmake`", "cmake"),
    ],
)  # fmt: skip
def test_the_line_of_the_recipe_is_named(line: str, what: str, package: str) -> None:
    expected = f"the build needs the {what}: add `build_packages: {{apt: [{package}]}}` to the recipe"

    assert advice(["building", line, "error: command failed"]) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "x.c:1:10: fatal error: own/thing.h: No such file or directory",
            "the build needs the header `own/thing.h`: add the package that contains it to the recipe: "
            "`build_packages: {apt: [NAME]}`",
        ),
        (
            "/usr/bin/ld: cannot find -lFoo: No such file or directory",
            "the build needs the library `libFoo`: add the package that contains it to the recipe: "
            "`build_packages: {apt: [libfoo-dev]}`",
        ),
        (
            "OSError: CUDA_HOME environment variable is not set.",
            "the build needs nvcc of CUDA: require a release that has wheels, or use a component",
        ),
        (
            "ModuleNotFoundError: No module named 'Cython.Build'",
            "the build imports `Cython`, which the package does not declare: add a package with it to "
            "`build_requirements` of the recipe",
        ),
    ],
)
def test_other_causes_have_advice(line: str, expected: str) -> None:
    assert advice([line]) == expected


@pytest.mark.parametrize(
    "line",
    [
        "error: command '/usr/bin/gcc' failed with exit code 1",
        "make: *** [Makefile:3: all] Error 2",
        "x.c:3: error: expected ';'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'README.md'",
        "Running setup.py install for own",
    ],
)
def test_other_failures_have_none(line: str) -> None:
    assert advice([line]) == ""
