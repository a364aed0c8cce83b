"""Import the packages that the recipe's requirements name, each module in its own process.

`REQUIREMENTS` lists them with the line that asks for each. Each package is one check. GPU libraries are
replaced by the stubs of `libraries.py` if a module needs them and the host has none.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import unittest
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).with_name("requirements.json")
SECONDS = 120.0
"""Time for one module."""
NOT_A_MODULE = re.compile(r"_.*|tests?|testing|docs?|examples?|benchmarks?|scripts?|bin")
"""Names of directories that wheels contain by mistake, and of private modules."""
MODULE_FILE = re.compile(r"(?P<module>[A-Za-z_]\w*)(?P<suffix>\.py|(?:\.[\w-]+)?\.so)")
IMPORT = """
import importlib, json, os, sys
sys.path[:] = [path for path in sys.path if path]
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
try:
    importlib.import_module(sys.argv[1])
    answer = {}
except BaseException as error:
    import traceback
    traceback.print_exc()
    kinds = [kind.__name__ for kind in type(error).__mro__]
    answer = {"kinds": kinds, "text": str(error), "name": getattr(error, "name", None)}
print(json.dumps(answer), file=answers, flush=True)
os._exit(0)
"""
"""Ends without the handlers of the module, which may wait for a device."""

REMOVED = {
    "3.12": {"asynchat", "asyncore", "distutils", "imp", "smtpd"},
    "3.13": {
        *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap", "msilib"),
        *("nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
    },
}
"""Standard modules by the Python that removed them: docs.python.org/3/library/removed.html."""
NUMPY_1 = re.compile(
    r"compiled using NumPy 1\.x|numpy\.dtype size changed|_ARRAY_API not found|"
    r"numpy\.core\.(?:_?multiarray|umath)\w* failed to import|module compiled against ABI version"
)
NUMPY_WARNING = "A module that was compiled using NumPy 1.x cannot be run in"
"""NumPy prints it and goes on; what the module does with arrays fails later."""
NO_LIBRARY = re.compile(r"(?P<library>\S+\.so[.\d]*): cannot open shared object file")
NO_SYMBOL = re.compile(r"(?P<file>\S+\.so\S*): undefined symbol: (?P<symbol>\S+)")
NO_VERSION = re.compile(r"(?P<file>\S+\.so\S*): version [`'](?P<version>\S+)' not found")
NO_NAME = re.compile(r"cannot import name '(?P<name>[^']+)' from (?:[a-z ]+ )?'(?P<module>[^']+)'")
NO_ATTRIBUTE = re.compile(r"module '(?P<module>[^']+)' has no attribute '(?P<name>[^']+)'")
DRIVER = re.compile(r"lib(?:cuda|nvidia-[a-z0-9-]+|nvcuvid|nvoptix)\.so[.\d]*")
HARDWARE = re.compile(r"(?i)\b(?:cuda|gpus?|nvidia|drivers?|neuron|devices?|accelerators?|hardware)\b")


@dataclass(frozen=True)
class Required:
    """A package that the recipe asks for."""

    name: str
    marker: str
    source: str
    """File and line of the requirement."""
    untested: str
    """The reason in the recipe why it is not imported."""


@dataclass(frozen=True)
class ImportFailure:
    """A module that cannot be imported."""

    module: str
    cause: str
    fit: str
    """Advice, as an imperative."""
    log: str = ""


def required() -> list[Required]:
    return [Required(**entry) for entry in json.loads(REQUIREMENTS.read_text(encoding="utf-8"))]


def applies(marker: str) -> bool:
    if not marker:
        return True
    # The directory of this file has the library under a name that no package of the image has
    sys.path.insert(0, str(Path(__file__).parent))
    from probe_packaging.markers import Marker  # type: ignore[import-not-found]

    return bool(Marker(marker).evaluate({"extra": ""}))


def modules_of(distribution: importlib.metadata.Distribution) -> list[str]:
    """Return the modules that a distribution adds to the top level, or to a namespace of several ones."""
    files = [str(file) for file in distribution.files or ()]
    if not files:
        # Packages of Linux distributions have no list of files
        listed = (distribution.read_text("top_level.txt") or "").split()
        return sorted(name for name in listed if not NOT_A_MODULE.fullmatch(name))
    present = set(files)
    modules: dict[str, None] = {}
    for file in files:
        *directories, last = file.split("/")
        if not (match := MODULE_FILE.fullmatch(last)) or any(not name.isidentifier() for name in directories):
            continue
        names = list(directories)
        for depth in range(1, len(names) + 1):
            if "/".join([*names[:depth], "__init__.py"]) in present:
                names = names[:depth]
                break
        else:
            names.append(match["module"])
        if not any(NOT_A_MODULE.fullmatch(name) for name in names):
            modules[".".join(names)] = None
    return shallowest(modules)


def shallowest(modules: Iterable[str]) -> list[str]:
    """Leave out modules below a directory that has modules nearer to the top level."""
    kept: list[str] = []
    for module in sorted(modules, key=lambda name: (name.count("."), name)):
        top = module.partition(".")[0]
        if not any(other.partition(".")[0] == top and other.count(".") < module.count(".") for other in kept):
            kept.append(module)
    return sorted(kept)


def import_module(module: str, library_path: str = "") -> tuple[dict[str, Any] | None, str, int]:
    """Import a module in its own process; return its answer, its output and the exit code."""
    path = ":".join(filter(None, (library_path, os.environ.get("LD_LIBRARY_PATH", ""))))
    environment = {**os.environ, **({"LD_LIBRARY_PATH": path} if path else {})}
    command = [sys.executable, "-c", IMPORT, module]
    try:
        process = subprocess.run(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stderr or b""
        return None, output if isinstance(output, str) else output.decode(errors="replace"), 0
    answer = next((json.loads(line) for line in process.stdout.splitlines()[-1:]), None)
    return answer, process.stderr, process.returncode


def failure_of(package: str, module: str) -> ImportFailure | None:
    """Import a module, with stubs of the driver's libraries if it needs them; return its failure."""
    answer, log, code = import_module(module)
    if answer and needs_driver(answer):
        answer, log, code = import_module(module, stubs())
    if answer is None:
        end = f"Python ended with code {code}" if code else f"the import did not end within {SECONDS:g} s"
        if code < 0:
            end = f"Python was killed by signal {-code}"
        return ImportFailure(module, end, "ask for another version of it", log)
    if not answer:
        if NUMPY_WARNING not in log:
            return None
        answer = {"kinds": [], "text": NUMPY_WARNING, "name": None}
    cause, fit = diagnosis(package, answer, log)
    return ImportFailure(module, cause, fit, log)


def needs_driver(answer: dict[str, Any]) -> bool:
    match = NO_LIBRARY.search(answer.get("text", ""))
    return bool(match and DRIVER.fullmatch(match["library"]))


@functools.lru_cache(maxsize=1)
def stubs() -> str:
    """Return a directory with stubs of the driver's libraries. Raises SkipTest without a C compiler."""
    sys.path.insert(0, str(Path(__file__).parent))
    import libraries  # type: ignore[import-not-found]

    directory = tempfile.mkdtemp()
    libraries.write_stubs(libraries.gpu_extensions(), directory)
    return directory


def diagnosis(package: str, answer: dict[str, Any], log: str) -> tuple[str, str]:
    """Return the cause of a failed import, and what would fit."""
    text, kinds = str(answer["text"]), answer["kinds"]
    if NUMPY_1.search(text) or NUMPY_1.search(log):
        numpy = version_of("numpy")
        if numpy.split(".")[0].isdigit() and int(numpy.split(".")[0]) >= 2:
            cause = f"an extension that it needs was compiled for NumPy 1, but NumPy {numpy} is installed"
            return cause, f"ask for `numpy<2`, or for a release of {culprit(log, package)} made for NumPy 2"
        cause = f"an extension that it needs was compiled for a newer NumPy than {numpy}"
        return cause, f"ask for a newer `numpy`, or for an older release of {culprit(log, package)}"
    if match := NO_LIBRARY.search(text):
        name = match["library"]
        return (
            f"the library `{name}` is missing",
            f"add the package that contains it to the recipe: {apt(name)}",
        )
    if match := NO_VERSION.search(text):
        cause = (
            f"`{match['file'].rpartition('/')[2]}` does not have {match['version']}, which an extension needs"
        )
        return cause, "ask for a release that was compiled for this image"
    if match := NO_SYMBOL.search(text):
        file = match["file"].rpartition("/")[2]
        cause = f"`{file}` was compiled for another version of a library: `{match['symbol']}` is undefined"
        return cause, "ask for a release that was compiled for the versions in this image"
    if "ModuleNotFoundError" in kinds:
        return missing_module(package, str(answer["name"] or text))
    if match := NO_NAME.search(text) or NO_ATTRIBUTE.search(text):
        owner = distribution_of(match["module"])
        cause = f"`{match['module']}` of {owner} has no `{match['name']}`"
        return cause, f"ask for another version of `{owner.split()[0]}`, or for a newer `{package}`"
    first = next(iter(text.strip().splitlines()), "")
    cause = f"{kinds[0]}: {first}" if first else kinds[0]
    if HARDWARE.search(text):
        return cause, f"if it needs hardware, write `untested_imports: {{{package}: REASON}}` in the recipe"
    return cause, "ask for another version of it"


def missing_module(package: str, name: str) -> tuple[str, str]:
    """Return the cause of a ModuleNotFoundError, and what would fit."""
    top = name.partition(".")[0]
    python = sysconfig.get_python_version()
    if top == "pkg_resources":
        version = version_of("setuptools")
        state = f"which setuptools {version} lacks" if version else "but setuptools is not installed"
        fit = f"ask for `setuptools<82`, which still has it, or for a newer `{package}`"
        return f"it imports `pkg_resources`, {state}", fit
    removals = (version for version, names in REMOVED.items() if top in names and is_newer(python, version))
    if removal := next(removals, ""):
        cause = f"it imports `{top}`, which Python {removal} removed"
        more = "ask for `setuptools`, which provides it, or" if top == "distutils" else "ask"
        return cause, f"{more} for a release of `{package}` for Python {python}"
    if top == "distutils":
        return "it imports `distutils`, which this Python lacks", "ask for `setuptools`, which provides it"
    if top in getattr(sys, "stdlib_module_names", ()):
        fit = "use the variant `uv-*` of `python`, which is complete"
        if top.strip("_") == "tkinter":
            fit = "add the Debian package with it to the recipe: `packages: {apt: [python3-tk]}`"
        return f"this Python lacks the standard module `{top}`", fit
    if "." in name and importlib_finds(top):
        owner = distribution_of(top)
        cause = f"`{owner.split()[0]}` has no module `{name}` in version {owner.rpartition(' ')[2]}"
        return cause, f"ask for another version of `{owner.split()[0]}`, or for a newer `{package}`"
    cause = f"the module `{name}` is missing, and `{package}` does not require a package that has it"
    return cause, f"add the package that contains `{top}` to the requirements"


def importlib_finds(top: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def is_newer(python: str, removal: str) -> bool:
    return [*map(int, python.split("."))] >= [*map(int, removal.split("."))]


def apt(library: str) -> str:
    """Return the recipe line with the name that Debian's policy gives the package of a library."""
    stem, _, version = library.partition(".so")
    hyphen = "-" if stem[-1:].isdigit() and version else ""
    return f"on Debian usually `packages: {{apt: [{stem.lower()}{hyphen}{version.strip('.')}]}}`"


def culprit(log: str, package: str) -> str:
    """Return the package whose extension failed: the last file of the traceback outside of NumPy."""
    files = re.findall(r'File "[^"]*/(?:site|dist)-packages/([^/"]+)', log)
    others = [name.partition(".")[0] for name in files if name != "numpy"]
    return f"`{distribution_of(others[-1]).split()[0] if others else package}`"


@functools.lru_cache(maxsize=256)
def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.lru_cache(maxsize=256)
def distribution_of(module: str) -> str:
    """Return name and version of the distribution that has a module; the module without one."""
    top = module.partition(".")[0]
    for distribution in importlib.metadata.distributions():
        names = {name.partition(".")[0] for name in modules_of(distribution)}
        if top in names and distribution.metadata["Name"]:
            return f"{distribution.metadata['Name']} {distribution.version}"
    return f"{top} (unknown version)"


def results(package: Required) -> tuple[list[str], list[ImportFailure], float]:
    """Import all modules of a package; return them, the failures and the seconds. Raises SkipTest."""
    if package.untested:
        raise unittest.SkipTest(f"the recipe says: {package.untested}")
    if not applies(package.marker):
        # The requirement is not for this Python or platform
        raise unittest.SkipTest("")
    try:
        modules = modules_of(importlib.metadata.distribution(package.name))
    except importlib.metadata.PackageNotFoundError:
        return [], [ImportFailure("", "it is not installed", "check the lock and the steps of `run`")], 0.0
    if not modules:
        raise unittest.SkipTest("its metadata lists no modules")
    started = time.monotonic()
    failures = [failure for module in modules if (failure := failure_of(package.name, module))]
    return modules, failures, time.monotonic() - started


@functools.lru_cache(maxsize=1)
def running() -> dict[str, Future[tuple[list[str], list[ImportFailure], float]]]:
    """Start all imports, as many at once as this process may use cores."""
    cores = None
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(cores)
    return {package.name: pool.submit(results, package) for package in required()}


def report(package: Required) -> str:
    """Return the evidence of one package. Raises AssertionError with the failure, or SkipTest."""
    modules, failures, seconds = running()[package.name].result()
    if not failures:
        return f"imported in {seconds:.1f} s: {', '.join(modules)}"
    # A section of the log for each package
    logs = (failure.log.rstrip() for failure in failures)
    print(
        f"--- requirements.{package.name}", *logs, "--- requirements", sep="\n", file=sys.stderr, flush=True
    )
    first = failures[0]
    module = f" (module `{first.module}`)" if first.module and first.module != package.name else ""
    more = f" (and {len(failures) - 1} more modules)" if len(failures) > 1 else ""
    message = f"`{package.name}`{module} cannot be imported: {first.cause}{more}; {first.fit}"
    raise AssertionError(message)


def checks() -> Iterator[tuple[str, Callable[[], str]]]:
    for package in required():
        yield f"check_{package.name}", functools.partial(report, package)


sources = {package.name: package.source for package in required()} if REQUIREMENTS.is_file() else {}
"""File and line by the name of a check, which `checks.py` reports."""
globals().update(checks() if REQUIREMENTS.is_file() else ())
