"""Make this Python report another version, because rehearsals use Debian's Python for all versions.

This file replaces the package `encodings`, the first module that an interpreter reads from a file, and then
executes the real one. The version comes from a file next to the interpreter or from its file name.
"""

import _io
import sys


def _first_line(path, start=""):
    try:
        with _io.FileIO(path) as file:
            lines = str(file.read(), "ascii").splitlines()
    except OSError:
        return ""
    return next((line[len(start) :].strip() for line in lines if line.startswith(start)), "")


def _version():
    directory, _, name = (sys.executable or "").rpartition("/")
    prefix = directory.rpartition("/")[0]
    number = name[len("python3.") :] if name.startswith("python3.") else ""
    return (
        _first_line(prefix + "/pyvenv.cfg", "version = ")
        or _first_line(prefix + "/rehearsed-python")
        or ("3." + number if number.isdigit() else "")
        or _first_line("/etc/rehearsed-python")
    )


class _VersionInfo(tuple):
    major, minor, micro, releaselevel, serial = (
        property(lambda self, number=number: self[number]) for number in range(5)
    )


_numbers = [int(number) for number in _version().split(".") if number.isdigit()]
if _numbers[:2] not in ([], [*sys.version_info[:2]]):
    # No release has the patch number 99, so that this version cannot be mistaken for a real one
    sys.version_info = _VersionInfo((_numbers[0], _numbers[1], 99, "final", 0))
    sys.hexversion = _numbers[0] << 24 | _numbers[1] << 16 | 99 << 8 | 0xF0
    _actual = ".".join(map(str, sys.implementation.version[:3]))
    _reported = f"{_numbers[0]}.{_numbers[1]}.99"
    sys.version = f"{_reported} (rehearsal, Jan 1 2026, 00:00:00) [stub, running {_actual}]"


def _special_forms(typing):
    """Accept the special forms that `typing_extensions`, also pip's copy, makes for Python before 3.9."""
    real = typing._SpecialForm.__init__

    def form(self, getitem, doc=None):
        if not isinstance(getitem, str):
            real(self, getitem)
            return
        self._getitem, self._name, self.__doc__ = None, getitem, doc

    typing._SpecialForm.__init__ = form


def _rmtree(shutil):
    """Accept the argument `onexc`, which pip passes on Python 3.12 or later."""
    real = shutil.rmtree

    def rmtree(path, *arguments, onexc=None, **options):
        if onexc:
            options["onerror"] = lambda function, path, error: onexc(function, path, error[1])
        real(path, *arguments, **options)

    rmtree.avoids_symlink_attacks = real.avoids_symlink_attacks
    shutil.rmtree = rmtree


def _extraction_filters(tarfile):
    """Accept the extraction filters that Python 3.12 has, which setuptools uses; they filter nothing."""
    if hasattr(tarfile, "data_filter"):
        return

    def without_filter(real):
        return lambda *arguments, filter=None, **options: real(*arguments, **options)

    tarfile.data_filter = tarfile.tar_filter = tarfile.fully_trusted_filter = lambda member, path: member
    for name in ("extract", "extractall"):
        setattr(tarfile.TarFile, name, without_filter(getattr(tarfile.TarFile, name)))


class _Patched:
    """An import hook that patches a module when it is imported."""

    def __init__(self, name, patch):
        self.name, self.patch = name, patch

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next(spec for spec in specs if spec)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.patch(module)

        spec.loader.exec_module = exec_module
        return spec


if tuple(sys.version_info) < (3, 9):
    sys.meta_path.insert(0, _Patched("typing", _special_forms))
if tuple(sys.version_info) >= (3, 12) > sys.implementation.version:
    sys.meta_path.insert(0, _Patched("shutil", _rmtree))
    sys.meta_path.insert(0, _Patched("tarfile", _extraction_filters))

with _io.open_code("/usr/lib/bakehouse-rehearsal/encodings.py") as _file:
    exec(compile(_file.read(), __file__, "exec"))
