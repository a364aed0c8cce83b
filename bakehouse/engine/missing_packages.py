"""Distribution packages that the build of a source distribution lacks, found in its output."""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bakehouse import catalog

_FACTS = Path(catalog.__file__).with_name("data") / "build_packages.json"
_NAME = r"['\"`]?(?P<name>[A-Za-z][\w.+-]*)['\"`]?"
_PROGRAM = (
    re.compile(rf"(?:^|[\s:]){_NAME}: (?:command )?not found$"),
    re.compile(rf"No such file or directory: {_NAME}$"),
    re.compile(r"command ['\"](?:\S*/)?(?P<name>[^'\"/]+)['\"] failed: No such file or directory"),
    re.compile(rf"(?:^|[\s:]){_NAME}: No such file or directory$"),
    re.compile(
        rf"(?i)(?:^|\s){_NAME} (?:executable |compiler |program )?"
        r"(?:was not found|not found|(?:is )?not installed|must be installed|is required|could not be found)"
    ),
    re.compile(
        r"(?i)(?:can't|cannot|could not|unable to|did not|failed to) (?:find|execute|run|locate) (?:the )?"
        rf"(?:program |executable |command )?{_NAME}"
    ),
    re.compile(rf"(?i)CMake executable is {_NAME}"),
    re.compile(rf"(?i)(?:install|update|upgrade) (?:(?:the|your|a|temporary) )*{_NAME}"),
)
"""Messages about a missing program, the most specific first."""
_HEADER = re.compile(r"fatal error: (?P<name>[\w./+-]+): No such file or directory")
_LIBRARY = re.compile(r"cannot find -l(?P<name>[\w.+-]+)")
_CUDA = re.compile(r"CUDA_HOME|nvcc(?:: command)? (?:was )?not found|nvcc: not found|No such file.*\bnvcc\b")
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_ALIASES = {
    "rust": "rustc",
    "pkgconfig": "pkg-config",
    "fortran": "gfortran",
    "c++": "g++",
    "pg-config": "pg_config",
}
_TRIPLE = re.compile(r"^(?:x86_64|aarch64)-linux-gnu-")


def advice(output: Sequence[str]) -> str:
    """Return what a failed build lacks and the line of the recipe that adds it; empty if unknown."""
    for line in output:
        if _CUDA.search(line):
            return "the build needs nvcc of CUDA: require a release that has wheels, or use a component"
    for line in output:
        if match := _HEADER.search(line):
            return _add(f"the header `{match['name']}`", _known("headers").get(match["name"], ""))
        if match := _LIBRARY.search(line):
            return _add(f"the library `lib{match['name']}`", "", f"lib{match['name'].lower()}-dev")
    for line in output:
        for program in _programs(line):
            return _add(f"the program `{program}`", _known("programs")[program])
    modules = [match["name"].partition(".")[0] for line in output if (match := _MODULE.search(line))]
    if modules:
        return (
            f"the build imports `{modules[-1]}`, which the package does not declare: add a package with it "
            "to `build_requirements` of the recipe"
        )
    return ""


def _programs(line: str) -> Iterator[str]:
    """Yield the known programs that a line reports as missing."""
    for pattern in _PROGRAM:
        if match := pattern.search(line.strip().rstrip(".")):
            name = _TRIPLE.sub("", match["name"]).lower()
            name = _ALIASES.get(name, name)
            if name in _known("programs"):
                yield name


def _add(what: str, package: str, guess: str = "") -> str:
    if package:
        return f"the build needs {what}: add `build_packages: {{apt: [{package}]}}` to the recipe"
    line = f"`build_packages: {{apt: [{guess or 'NAME'}]}}`"
    return f"the build needs {what}: add the package that contains it to the recipe: {line}"


@functools.cache
def _known(kind: str) -> Mapping[str, str]:
    """Return Debian's packages by the name of a program or a header."""
    packages: Mapping[str, str] = json.loads(_FACTS.read_bytes())[kind]
    return packages
