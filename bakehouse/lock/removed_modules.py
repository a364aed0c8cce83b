"""Packages of a lock that import modules which the image's Python or setuptools no longer has.

Only wheels that were downloaded before are read, because locking does not download wheels.
"""

import ast
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import Version

from bakehouse.lock.python import LockedFile
from bakehouse.util import archive_reader, python_source

_REMOVED = {
    "3.12": ("asynchat", "asyncore", "distutils", "imp", "smtpd"),
    "3.13": (
        *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap", "msilib"),
        *("nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
    ),
}
_LAST_PKG_RESOURCES = 81
"""Last major version of setuptools with `pkg_resources`."""
_SUBSTITUTES = {"audioop": "audioop-lts", "cgi": "legacy-cgi", "cgitb": "legacy-cgi"}
"""Packages that provide a removed module, in addition to packages named `standard-MODULE`."""
_NOT_IMPORTED = ("test", "tests", "doc", "docs", "examples", "benchmarks")
_MAX_BYTES = 50_000_000
_MAX_MODULES = 500


def warnings(
    files: Iterable[LockedFile], downloads: Path | None, python: str, setuptools: str
) -> Iterator[str]:
    """Yield a line for each package whose import fails, by what its modules import first.

    `downloads` is the directory of downloaded files, and `setuptools` the version in the image, or empty.
    """
    files = [*files]
    gone = _gone(python, setuptools, {file.name for file in files})
    for file in files if downloads and gone else ():
        path = Path(str(downloads), file.sha256, file.file)
        if not file.file.endswith(".whl") or not path.is_file():
            continue
        try:
            with archive_reader.open_zip(path) as archive:
                found = _Wheel(archive).first_import(gone)
        except archive_reader.DAMAGED:
            continue
        if found:
            where, module = found
            hint = f"a newer `{file.name}`"
            hint = f"`setuptools<{_LAST_PKG_RESOURCES + 1}`, or {hint}" if module == "pkg_resources" else hint
            yield (
                f"{file.name} {file.version} cannot be imported: `{where}` imports `{module}`, which "
                f"{gone[module]} removed; ask for {hint}"
            )


def _gone(python: str, setuptools: str, names: set[str]) -> dict[str, str]:
    """Return the missing modules, each with the Python or setuptools that removed it."""
    gone = {
        module: f"Python {release}"
        for release, modules in _REMOVED.items()
        if Version(python) >= Version(release)
        for module in modules
        if not {f"standard-{module}", _SUBSTITUTES.get(module, "")} & names
    }
    if setuptools:
        # It brings its own
        gone.pop("distutils", "")
        if Version(setuptools).major > _LAST_PKG_RESOURCES:
            gone["pkg_resources"] = f"setuptools {_LAST_PKG_RESOURCES + 1}"
    return gone


class _Wheel:
    """The modules of a wheel."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        self._modules = {path for path in sizes if path.endswith(".py") and ".data/" not in path}
        self._is_readable = sum(sizes[path] for path in self._modules) <= _MAX_BYTES

    def first_import(self, gone: Iterable[str]) -> tuple[str, str] | None:
        """Return the first imported module of the package that imports a removed one, and the removed one.

        Imports in `try`, `if` and functions do not count: they may never run, or may fail.
        """
        words = re.compile(rb"^(?:import|from)[ \t]+(?:%s)\b" % "|".join(gone).encode(), re.MULTILINE)
        if not self._is_readable or not any(words.search(self._content(path)) for path in self._modules):
            return None
        tops = (path for path in self._modules if path.count("/") == path.endswith("/__init__.py"))
        queue = sorted(path for path in tops if path.split("/")[0].removesuffix(".py") not in _NOT_IMPORTED)
        seen = set(queue)
        while queue and len(seen) <= _MAX_MODULES:
            path = queue.pop(0)
            for name in self._imports(path):
                if (module := name.partition(".")[0]) in gone:
                    return path, module
                for below in self._paths(name):
                    if below not in seen:
                        seen.add(below)
                        queue.append(below)
        return None

    def _content(self, path: str) -> bytes:
        return archive_reader.zip_content(self._archive, path, _MAX_BYTES)

    def _imports(self, path: str) -> Iterator[str]:
        """Yield the names of the modules that the statements of a module import."""
        try:
            body = python_source.parse(self._content(path)).body
        except (SyntaxError, RecursionError):
            return
        package = path.removesuffix(".py").split("/")[:-1]
        for node in body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*above, *([node.module] if node.module else [])])
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)

    def _paths(self, name: str) -> Iterator[str]:
        """Yield the files of a module and of the packages that contain it."""
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            stem = "/".join(parts[:depth])
            yield from self._modules & {f"{stem}.py", f"{stem}/__init__.py"}
