"""Static checks of all programs and libraries of an image: what the loader would find, without a GPU.

They read ELF files with pyelftools, which Bakehouse adds to the container, and search as ld.so(8) does.
`FACTS` has the libraries that the host provides, and the GPUs of the image's targets.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import mmap
import os
import platform
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = "/"
FACTS = Path(__file__).with_name("libraries.json")
SKIPPED = {"/proc", "/sys", "/dev", "/run"}
SYSTEM_FILE = re.compile(r"/(usr/)?(s?bin|lib(32|64|x32|exec)?|games|share)/|/(boot|etc|var)/")
SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
WRITABLE = ("/tmp", "/var/tmp", "/dev/shm", "/opt/ml")
"""Directories to which a job or SageMaker adds files."""
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
DEFINITIONS = (1, 2, 6, 10)
"""Types of symbols: variables, functions, variables of threads, functions that are chosen at load."""
FATBIN, ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQQHHI8xQ")
"""Headers of a fat binary and of its entries: see github.com/n-eiling/cuda-fatbin-decompression.

Fields of an entry are kind, version, sizes of header, payload and compressed payload, two version numbers of
the code, architecture, and flags.
"""
FATBIN_MAGIC, PTX = 0xBA55ED50, 1
EMPTY_MODULE = 2048
"""The device linker of nvcc adds a module without kernels, which is smaller than this."""
ARCHITECTURE_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000
"""Flags of code for architectures such as `90a` and `100f`, as nvcc 13.0 sets them."""
DRIVER_FUNCTION = re.compile(rb"cu[A-Z]|cudbg|cuvid|nvml[A-Z]|optix")
"""Functions of the driver's libraries. Those of CUDA, such as `cudaMalloc`, are in the image."""
PACKAGES = re.compile(r"/(site|dist)-packages/")
LOADED = re.compile(r"/lib(64)?/[^/]+\.so[.0-9]*$")
"""Libraries. Plugins in deeper directories may need devices that are optional."""
OF_PYTHON = re.compile(r"/python3\.(\d+)/.*\.cpython-3(\d+t?)-")
MODULE = re.compile(r"/(?:site|dist)-packages/((?:[^/.]+/)*[^/.]+)\.")
PACKAGE = re.compile(r"(.*/(?:site|dist)-packages/[^/.]+)")
WHEEL_HASH = re.compile(r"[-.][0-9a-f]{8,}$")
PLUGIN_VERSION = re.compile(rb"aws-ofi-nccl (\d+\.\d+\.\d+)")
INTERFACE = re.compile(rb"nccl(Net|Gin)Plugin_v(\d+)")


@dataclass(eq=False)
class Library:
    """An ELF file of the image: a library or a program."""

    path: str
    """Path in the image, without links."""
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...] | None
    runpath: tuple[str, ...] | None
    versions: frozenset[str]
    """Names of the symbol versions that it defines."""
    needed_versions: dict[str, tuple[str, ...]]
    """Symbol versions that it needs, by the file that defines them."""
    gpu_code: tuple[tuple[int, int], ...]
    """Offsets and sizes of the sections with GPU code."""
    symbols: Any = field(default=None, repr=False)
    """Offsets and sizes of .dynsym, .dynstr and .gnu.version, and the names of version indexes."""
    relocations: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """Offsets and sizes of the sections by which the loader binds symbols."""
    is_symbolic: bool = False
    """The loader searches the library itself first."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_in_package(self) -> bool:
        return PACKAGES.search(self.path) is not None

    @functools.cached_property
    def exported(self) -> frozenset[bytes]:
        """Names of the symbols that it defines; with a version, also as `name@version`."""
        return self._tables[0]

    @functools.cached_property
    def undefined(self) -> tuple[tuple[bytes, bytes], ...]:
        """Names of the symbols that it needs, each with its version or nothing; without weak ones."""
        return self._tables[1]

    @functools.cached_property
    def replaceable(self) -> dict[bytes, bytes]:
        """Names that it defines and another library can replace, each with its version.

        Weak and unique symbols are left out: C++ compilers make them for code that is the same everywhere.
        """
        return {
            name: version
            for name, version, info, other, section in self._symbols
            if section and info >> 4 == 1 and info & 15 in DEFINITIONS and not other & 3
        }

    @functools.cached_property
    def bound(self) -> frozenset[bytes]:
        """Names that the loader looks up for it in all libraries."""
        if self.symbols is None:
            return frozenset()
        names: set[bytes] = set()
        symbols = self._symbols
        with at(self.path).open("rb") as file:
            for place in self.relocations:
                indexes = {info >> 32 for _, info, _ in RELOCATION.iter_unpack(_read(file, *place))}
                names.update(
                    name
                    for name, _, _, other, section in (
                        symbols[index] for index in indexes if index < len(symbols)
                    )
                    if not other & 3 and not (section and self.is_symbolic)
                )
        return frozenset(names)

    @functools.cached_property
    def _tables(self) -> tuple[frozenset[bytes], tuple[tuple[bytes, bytes], ...]]:
        exported, undefined = [], []
        for name, version, info, _, section in self._symbols:
            binding = info >> 4
            if not name or not binding:
                continue
            if section:
                exported.append(name)
                if version:
                    exported.append(name + b"@" + version)
            elif binding == 1:
                undefined.append((name, version))
        return frozenset(exported), tuple(undefined)

    @property
    def _symbols(self) -> list[tuple[bytes, bytes, int, int, int]]:
        """Name, version, type with binding, visibility and section of each symbol."""
        if self.symbols is None:
            return []
        tables, names = self.symbols
        with at(self.path).open("rb") as file:
            symbols, strings, versions = (_read(file, *table) for table in tables)
        indexes = struct.unpack(f"<{len(versions) // 2}H", versions)
        return [
            (
                strings[start : strings.index(b"\0", start)] if start else b"",
                names.get(indexes[index] & 0x7FFF, b"") if indexes else b"",
                info,
                other,
                section,
            )
            for index, (start, info, other, section, _, _) in enumerate(SYMBOL.iter_unpack(symbols))
        ]


def at(path: str) -> Path:
    """Return the place of a path of the image."""
    return Path(ROOT.rstrip("/") + path)


def _read(file: Any, offset: int, size: int) -> bytes:
    file.seek(offset)
    return bytes(file.read(size))


def read_library(path: str) -> Library | None:
    """Read an ELF file; None if it is for another machine, or not to be loaded."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

    if not at(path).is_file():
        return None
    with at(path).open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            elf = ELFFile(file)
            machine = MACHINES.get(platform.machine(), elf["e_machine"])
            if elf.elfclass != 64 or not elf.little_endian or elf["e_machine"] != machine:
                return None
            sections = {section.name: section for section in elf.iter_sections()}
            dynamic = next((item for item in sections.values() if isinstance(item, DynamicSection)), None)
            if dynamic is None:
                return None
            tags: dict[str, list[Any]] = {}
            for tag in dynamic.iter_tags():
                text = {
                    "DT_NEEDED": "needed",
                    "DT_SONAME": "soname",
                    "DT_RPATH": "rpath",
                    "DT_RUNPATH": "runpath",
                }
                kind = tag.entry.d_tag
                if kind in text:
                    tags.setdefault(kind, []).append(getattr(tag, text[kind]))
            names: dict[int, bytes] = {}
            defined: list[str] = []
            needed_versions: dict[str, list[str]] = {}
            for section in sections.values():
                if isinstance(section, GNUVerDefSection):
                    for number, (definition, auxiliaries) in enumerate(section.iter_versions()):
                        version = next(iter(auxiliaries)).name
                        names[definition["vd_ndx"]] = b"" if number == 0 else version.encode()
                        defined.append(version)
                elif isinstance(section, GNUVerNeedSection):
                    for need, auxiliaries in section.iter_versions():
                        for auxiliary in auxiliaries:
                            names[auxiliary["vna_other"]] = auxiliary.name.encode()
                            if not auxiliary["vna_flags"] & 2:  # VER_FLG_WEAK
                                needed_versions.setdefault(need.name, []).append(auxiliary.name)
            tables = [sections.get(name) for name in (".dynsym", ".dynstr", ".gnu.version")]
            places = [(table["sh_offset"], table["sh_size"]) if table else (0, 0) for table in tables]
            relocations = (
                (section["sh_offset"], section["sh_size"])
                for section in sections.values()
                if section["sh_type"] == "SHT_RELA" and section["sh_flags"] & 2  # SHF_ALLOC
            )
            is_symbolic = any(
                tag.entry.d_tag == "DT_SYMBOLIC"
                or (tag.entry.d_tag == "DT_FLAGS" and tag.entry.d_val & 2)  # DF_SYMBOLIC
                for tag in dynamic.iter_tags()
            )
            gpu_code = (
                (section["sh_offset"], section["sh_size"])
                for name, section in sections.items()
                if name == ".nv_fatbin" and section["sh_size"] >= EMPTY_MODULE
            )
            return Library(
                path,
                tags.get("DT_SONAME", [""])[0],
                tuple(tags.get("DT_NEEDED", ())),
                _entries(tags.get("DT_RPATH")),
                _entries(tags.get("DT_RUNPATH")),
                frozenset(defined),
                {name: tuple(versions) for name, versions in needed_versions.items()},
                tuple(gpu_code),
                (places, names) if tables[0] else None,
                tuple(relocations),
                is_symbolic,
            )
        except (ELFError, UnicodeDecodeError, ValueError, KeyError, struct.error):
            print(f"{path} is not a readable ELF file", file=sys.stderr)
            return None


def _entries(paths: list[str] | None) -> tuple[str, ...] | None:
    return tuple(paths[0].split(":")) if paths else None


@dataclass
class Closure:
    """A program or library with all that the loader loads for it."""

    libraries: list[Library]
    missing: list[tuple[Library, str]]
    """Names that the loader does not find, each with the library that needs it."""
    taken: list[tuple[Library, str, Library]]
    """For each needed name: the library that needs it, the name, and the library that the loader takes."""
    host: set[str]
    """Names of libraries that the host provides."""


class ElfImage:
    """The ELF files of an image, and the loader's search for them."""

    def __init__(self, environment: dict[str, str], facts: dict[str, Any]) -> None:
        self.environment, self.facts = environment, facts
        self.library_path = [path for path in environment.get("LD_LIBRARY_PATH", "").split(":") if path]
        self._read: dict[str, Library | None] = {}
        self._closures: dict[str, Closure] = {}
        self.paths: dict[str, list[str]] = {}
        """Paths of libraries and of links to them, by name."""
        roots = []
        for path, is_link in self._files("/"):
            name = path.rpartition("/")[2]
            if ".so" in name:
                self.paths.setdefault(name, []).append(path)
            is_system = (
                SYSTEM_FILE.match(path) and not PACKAGES.search(path) and not self.matches("cuda", name)
            )
            if not is_link and not is_system:
                roots.append(path)
        self.cache = self._cache()
        self.roots = [library for path in roots if (library := self.find_file(path))]
        """All but those of distribution packages, whose dependencies the package manager ensures."""

    def matches(self, kind: str, text: str) -> bool:
        """Return whether a name or path is one of the facts of a kind."""
        return self._pattern(kind).search(text) is not None

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def _pattern(self, kind: str) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{entry['pattern']})" for entry in self.facts[kind]))

    def _files(self, directory: str) -> Iterator[tuple[str, bool]]:
        """Yield the paths of libraries and programs, and whether each is a link."""
        try:
            entries = sorted(os.scandir(at(directory)), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            path = directory.rstrip("/") + "/" + entry.name
            if entry.is_dir(follow_symlinks=False):
                if path not in SKIPPED:
                    yield from self._files(path)
            elif ".so" in entry.name:
                yield path, entry.is_symlink()
            elif not entry.is_symlink() and entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR:
                yield path, False

    def _cache(self) -> dict[str, str]:
        """Return the paths in the loader's cache by name; without a cache, those of its settings."""
        cache = at("/etc/ld.so.cache")
        paths: dict[str, str] = {}
        if cache.exists():
            command = ["/sbin/ldconfig", "-p", "-C", str(cache)]
            output = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
            for line in output.splitlines()[1:]:
                name, arrow, path = line.strip().partition(" => ")
                if arrow:
                    paths.setdefault(name.split(" ")[0], path)
            return paths
        system = (f"/lib/{_multiarch()}", f"/usr/lib/{_multiarch()}")
        for directory in (*self._configured("/etc/ld.so.conf"), *system):
            for file in sorted(at(directory).glob("*.so*")):
                paths.setdefault(file.name, f"{directory}/{file.name}")
        return paths

    def _configured(self, path: str) -> Iterator[str]:
        """Yield the directories of a file of settings and of those that it includes."""
        if not at(path).is_file():
            return
        for line in at(path).read_text().splitlines():
            words = line.partition("#")[0].split()
            if words[:1] == ["include"]:
                for pattern in words[1:]:
                    for file in sorted(at("/etc").glob(pattern.replace("/etc/", "", 1))):
                        yield from self._configured(f"/etc/{file.relative_to(at('/etc'))}")
            elif words:
                yield words[0]

    def find_file(self, path: str) -> Library | None:
        """Return the library or program at a path; None if there is none that this machine can load."""
        if path not in self._read:
            real = os.path.realpath(at(path))[len(ROOT.rstrip("/")) :]
            if real != path:
                self._read[path] = self.find_file(real)
            else:
                self._read[path] = read_library(path)
        return self._read[path]

    def named(self, name: str) -> list[Library]:
        """Return the libraries of a name, those of Python packages first."""
        paths = sorted(self.paths.get(name, ()), key=lambda path: not PACKAGES.search(path))
        return list(dict.fromkeys(library for path in paths if (library := self.find_file(path))))

    def directories(self, library: Library, entries: Iterable[str]) -> list[str]:
        """Return the directories of RPATH or RUNPATH."""
        origin = library.path.rpartition("/")[0]
        lib = "lib/" + _multiarch() if at(f"/usr/lib/{_multiarch()}").is_dir() else "lib64"
        values = {"ORIGIN": origin, "LIB": lib, "PLATFORM": platform.machine()}
        expanded = (
            re.sub(r"\$\{?(ORIGIN|LIB|PLATFORM)\}?", lambda match: values[match[1]], entry)
            for entry in entries
        )
        return [os.path.normpath(entry) for entry in expanded if entry.startswith("/")]

    def find(self, name: str, user: Library, rpaths: Iterable[str] = ()) -> Library | None:
        """Return the library that the loader takes for a name that `user` needs or opens.

        `rpaths` are directories of the libraries that led to it.
        """
        if "/" in name:
            (path,) = self.directories(user, [name]) or [""]
            return self.find_file(path) if path else None
        for directory in (
            *(self.directories(user, user.rpath or ()) if user.runpath is None else ()),
            *(rpaths if user.runpath is None else ()),
            *self.library_path,
            *self.directories(user, user.runpath or ()),
        ):
            library = self.find_file(f"{directory}/{name}")
            if library:
                return library
        paths = [self.cache.get(name, ""), *(f"{directory}/{name}" for directory in SYSTEM)]
        return next((library for path in paths if path and (library := self.find_file(path))), None)

    def closure(self, root: Library) -> Closure:
        """Return what the loader loads for a program or library."""
        if root.path in self._closures:
            return self._closures[root.path]
        closure = Closure([root], [], [], set())
        loaded = {root.soname or root.name: root}
        queue: list[tuple[Library, tuple[str, ...]]] = [(root, ())]
        while queue:
            user, rpaths = queue.pop(0)
            own = self.directories(user, user.rpath or ()) if user.runpath is None else []
            for name in user.needed:
                library = loaded.get(name)
                if library is None:
                    library = self.find(name, user, rpaths)
                    # The image may have copies of the host's libraries for old drivers.
                    if library is None and self.matches("host", name):
                        closure.host.add(name)
                        continue
                    library = library or self._preloaded(name, user)
                    if library is None:
                        closure.missing.append((user, name))
                        continue
                    loaded[name] = library
                    if library not in closure.libraries:
                        closure.libraries.append(library)
                        queue.append((library, tuple(dict.fromkeys((*own, *rpaths)))))
                closure.taken.append((user, name, library))
        self._closures[root.path] = closure
        return closure

    def _preloaded(self, name: str, user: Library) -> Library | None:
        """Return a library that a Python package may load by its path before `user`."""
        return next(iter(self.named(name)), None) if user.is_in_package else None

    def copies(self, name: str) -> list[Library]:
        """Return all libraries of a name, one of each size."""
        sizes: dict[int, Library] = {}
        for library in self.named(name):
            sizes.setdefault(at(library.path).stat().st_size, library)
        return list(sizes.values())


def _multiarch() -> str:
    return MULTIARCH.get(platform.machine(), "")


@functools.lru_cache(maxsize=1)
def image() -> ElfImage:
    try:
        # The directory of this file has scripts with names of packages.
        sys.path.insert(0, str(Path(__file__).with_name("pyelftools")))
        import elftools  # noqa: F401
    except ImportError:
        reason = "pyelftools is not available"
        raise unittest.SkipTest(reason) from None
    return ElfImage(dict(os.environ), json.loads(FACTS.read_text()))


def require(problems: Iterable[str], evidence: str = "") -> str:
    """Fail with the first problem and the number of others, all of which are in the log."""
    lines = list(dict.fromkeys(problems))
    print(*lines, sep="\n")
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    assert not lines, f"{lines[0]}{more}"
    print(evidence)
    return evidence


def check_each_library_finds_its_libraries() -> str:
    """The loader finds what each program and library needs; the host provides the driver's libraries."""
    problems, count, optional = [], 0, 0
    for root in image().roots:
        count += len(root.needed)
        missing = [name for user, name in image().closure(root).missing if user is root]
        if is_optional(root):
            optional += bool(missing)
        else:
            problems += [missing_text(root, name) for name in missing]
    plugins = f"; optional plugins without theirs: {optional}" if optional else ""
    return require(problems, f"files: {len(image().roots)}; libraries that they need: {count}{plugins}")


def is_optional(library: Library) -> bool:
    """Return whether a program opens the library only if it can be loaded."""
    is_plugin = ".so" in library.name and not library.is_in_package and not LOADED.search(library.path)
    version = OF_PYTHON.search(library.path)
    is_of_other_python = version is not None and version[1] != version[2]
    return is_plugin or is_of_other_python or image().matches("optional", library.path)


def missing_text(user: Library, name: str) -> str:
    """Return the cause of a missing library, and a hint."""
    others = image().named(name)
    stem = name.partition(".so")[0]
    alike = sorted(other for other in image().paths if other != name and other.partition(".so")[0] == stem)
    if others:
        directory = others[0].path.rpartition("/")[0]
        hint = f"it is in {directory}, which the loader does not search: add that to LD_LIBRARY_PATH"
    elif name in image().paths:
        hint = f"{image().paths[name][0]} is not a library for this machine: install the package again"
    elif alike:
        hint = f"the image has {alike[-1]}: install a build of {user.name} for it"
    else:
        hint = "install the package that contains it"
    return f"{user.path} needs {name}, which the loader does not find; {hint}"


def check_symbol_versions_are_defined() -> str:
    """Each library that the loader takes defines the symbol versions that others need of it.

    Optional plugins count with EFA alone: without a transport that fits, a job silently uses TCP.
    """
    problems, count = [], 0
    for root in image().roots:
        closure = image().closure(root)
        if is_optional(root) and (closure.missing or not has_efa()):
            continue
        count += len(closure.taken)
        problems += [text for taken in closure.taken for text in version_problems(*taken)]
    return require(problems, f"references with the needed versions: {count}")


def has_efa() -> bool:
    return at("/opt/amazon/efa").is_dir()


def version_problems(user: Library, name: str, library: Library) -> list[str]:
    """Return the symbol versions that the taken library does not define, each with a hint."""
    if not library.versions:
        return []
    problems = []
    for version in user.needed_versions.get(name, ()):
        if version in library.versions:
            continue
        family = version.rpartition("_")[0] + "_"
        alike = sorted(other for other in library.versions if other.startswith(family))
        with_it = [copy.path for copy in image().named(name) if version in copy.versions]
        hint = (
            f"{with_it[0]} has it: keep one copy, or put its directory first on the loader's path"
            if with_it
            else f"install a {name} that has it, or a build of {user.name} for this one"
        )
        has = f", which has {', '.join(alike)}" if alike else ""
        problems.append(
            f"{user.path} needs {version} of {name}, but the loader takes {library.path}{has}; {hint}"
        )
    return problems


def check_symbols_are_defined() -> str:
    """Each symbol that a Python extension or its libraries need is defined in the image."""
    problems, count = [], 0
    python = image().find_file(os.path.realpath(sys.executable)) if ROOT == "/" else None
    interpreter = image().closure(python).libraries if python else []
    for root in image().roots:
        closure = image().closure(root)
        # The first check is about what is missing.
        if not root.is_in_package or closure.missing or is_optional(root):
            continue
        scope = [*closure.libraries, *interpreter]
        count += len(root.undefined)
        for symbol, version in root.undefined:
            if any(defines(library, symbol, version) for library in scope) or is_guarded(root, symbol):
                continue
            # The process that loads the library may define symbols without version.
            is_elsewhere = not version and symbol in all_exported()
            if not is_elsewhere and not (closure.host and DRIVER_FUNCTION.match(symbol)):
                problems.append(undefined_text(root, symbol.decode(), version.decode()))
    return require(problems, f"symbols that Python packages need: {count}")


def is_guarded(user: Library, symbol: bytes) -> bool:
    """Return whether a library calls a function only after it tested that the image has it."""
    functions: list[dict[str, str]] = image().facts["guarded"]
    return any(
        re.search(entry["pattern"], user.path) and re.match(entry["functions"], symbol.decode())
        for entry in functions
    )


def defines(library: Library, symbol: bytes, version: bytes) -> bool:
    if not version or not library.versions:
        return symbol in library.exported
    return version.decode() in library.versions and symbol + b"@" + version in library.exported


@functools.lru_cache(maxsize=1)
def all_exported() -> frozenset[bytes]:
    """Return the symbols that any program or library defines."""
    paths = {
        *(root.path for root in image().roots),
        *(path for paths in image().paths.values() for path in paths),
    }
    return frozenset().union(*(library.exported for path in paths if (library := image().find_file(path))))


def check_imports_do_not_replace_functions() -> str:
    """No package takes over calls inside another one because its libraries define the same names.

    The loader searches libraries that are loaded for all (RTLD_GLOBAL) before those that a
    library needs, so the order of imports decides which one is called.
    """
    loaded: dict[Library, set[Library]] = {}
    for root in image().roots:
        if ".so" in root.name:
            libraries = image().closure(root).libraries
            for library in libraries:
                loaded.setdefault(library, set()).update(libraries)
    packages = global_packages()
    problems: dict[tuple[Library, str], str] = {}
    accepted: set[bytes] = set()
    for package, others in packages.items():
        for other in others:
            for library, users in loaded.items():
                names = same_names(library, other)
                harmless = {name for name in names if image().matches("shared", name.decode())}
                accepted |= harmless
                for user in users if names - harmless else ():
                    own = user.exported if user is not library else frozenset()
                    calls = sorted(((names - harmless) & user.bound) - own)
                    if calls and owner(user) != package and not work_together(user, other):
                        problems.setdefault((user, package), replaced_text(user, library, other, calls))
    count = sum(map(len, packages.values()))
    loaders = ", ".join(sorted(package.rpartition("/")[2] for package in packages)) or "no package"
    evidence = f"libraries: {len(loaded)}; loaded for all by {loaders}: {count}"
    more = f"; functions with a stable interface in several: {len(accepted)}" if accepted else ""
    return require(problems.values(), evidence + more)


def work_together(user: Library, other: Library) -> bool:
    """Return whether a library was tried with the functions of another one instead of its own."""
    return image().matches("together", f"{user.path} {other.path}")


def global_packages() -> dict[str, list[Library]]:
    """Return the libraries that Python packages load for all, with those that they need.

    A package whose Python code uses RTLD_GLOBAL counts; comments and messages that name it do not. Native
    code that uses it is not recognized.
    """
    roots: dict[str, list[Library]] = {}
    for root in image().roots:
        if root.is_in_package and ".so" in root.name:
            roots.setdefault(owner(root), []).append(root)
    return {
        package: list(dict.fromkeys(item for root in libraries for item in image().closure(root).libraries))
        for package, libraries in roots.items()
        if any(uses_rtld_global(path.read_bytes()) for path in at(package).rglob("*.py"))
    }


def uses_rtld_global(source: bytes) -> bool:
    """Return whether Python code has the flag as a name or an attribute; True if it cannot be parsed."""
    if b"RTLD_GLOBAL" not in source:
        return False
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError):
        return True
    fields = ("id", "attr", "name")
    return any(getattr(node, field, "") == "RTLD_GLOBAL" for node in nodes for field in fields)


def owner(library: Library) -> str:
    """Return the directory of the package that brings a library."""
    match = PACKAGE.match(library.path)
    return match[1] if match else library.path.rpartition("/")[0]


def same_names(library: Library, other: Library) -> set[bytes]:
    """Return the names that both define, with the same version; none for two copies of one library."""
    if owner(library) == owner(other) or stem(library) == stem(other):
        return set()
    names = library.replaceable.keys() & other.replaceable.keys()
    return {name for name in names if library.replaceable[name] == other.replaceable[name]}


def stem(library: Library) -> str:
    """Return the name of a library without its version and the hash that wheels add."""
    return WHEEL_HASH.sub("", library.name.partition(".so")[0])


def replaced_text(user: Library, library: Library, other: Library, calls: list[bytes]) -> str:
    more = f" and {len(calls) - 1} more symbols" if len(calls) > 1 else ""
    of = "itself" if user is library else library.path
    return (
        f"{user.path} needs {calls[0].decode()}{more} of {of}, but gets those of {other.path} if "
        "that is loaded first; rename them in one of the two with `patchelf --rename-dynamic-symbols`"
    )


def undefined_text(user: Library, symbol: str, version: str) -> str:
    """Return the cause of an undefined symbol, and a hint."""
    closure = image().closure(user)
    if version:
        file = next((name for name, versions in user.needed_versions.items() if version in versions), "")
        taken = next((library.path for _, name, library in closure.taken if name == file), file)
        copies = [copy.path for copy in image().named(file) if symbol.encode() in copy.exported]
        hint = (
            f"{copies[0]} has it: keep one copy, or put its directory first on the loader's path"
            if copies
            else f"install a build of {user.name} for this {file}"
        )
        return f"{user.path} needs {symbol}, but the loader takes {taken}, which lacks it; {hint}"
    # C++ compilers encode the name first, then the types of the arguments.
    start = symbol[: len(symbol) // 2].encode()
    owners = (
        item.name for item in closure.libraries[1:] if any(name.startswith(start) for name in item.exported)
    )
    owner = next(owners, "")
    cause = f"it was compiled for another {owner}: " if owner else ""
    hint = f"{cause}install a build of {user.name} for this image"
    return f"{user.path} needs {symbol}, which no library defines; {hint}"


def check_search_paths_are_safe() -> str:
    """RPATH and RUNPATH have no directory to which a job adds files, and none relative to the current one."""
    problems, outside, current = [], 0, 0
    for library in image().roots:
        for entry in (*(library.rpath or ()), *(library.runpath or ())):
            # Some wheels end with a colon, so that the loader searches the current directory last.
            if entry and not entry.startswith(("/", "$")):
                problems.append(
                    f"{library.path} searches `{entry}`, which is relative to the current directory; "
                    "change it with `patchelf --set-rpath`"
                )
            for directory in image().directories(library, [entry]):
                if directory.startswith(tuple(f"{top}/" for top in WRITABLE)) or directory in WRITABLE:
                    problems.append(
                        f"{library.path} searches {directory}, to which jobs add files; "
                        "change it with `patchelf --set-rpath`"
                    )
                outside += not at(directory).is_dir()
            current += not entry
    last = f"; files that also search the current directory: {current}" if current else ""
    return require(problems, f"searched directories outside the image: {outside}{last}")


def check_cuda_libraries_are_not_replaced() -> str:
    """LD_LIBRARY_PATH does not replace a library that comes with a Python package by another copy."""
    problems = []
    several = [name for name in sorted(image().paths) if image().matches("cuda", name)]
    copies = {name: files for name in several if len(files := image().copies(name)) > 1}
    for root in image().roots:
        for user, name, library in image().closure(root).taken if root.is_in_package else ():
            if user is not root or library not in copies.get(name, ()):
                continue
            own = (
                image().find_file(f"{path}/{name}") for path in image().directories(user, user.runpath or ())
            )
            expected = next((copy for copy in own if copy), library)
            if expected is not library:
                directory = library.path.rpartition("/")[0]
                problems.append(
                    f"{user.path} comes with {expected.path}, but the loader takes {library.path}; "
                    f"remove {directory} from LD_LIBRARY_PATH"
                )
    users: dict[Library, int] = {}
    for root in image().roots:
        for user, _, library in image().closure(root).taken:
            users[library] = users.get(library, 0) + (user is root)
    texts = [
        f"{name}: {', '.join(f'{copy.path} (for {users.get(copy, 0)} files)' for copy in files)}"
        for name, files in copies.items()
    ]
    return require(
        problems, f"several copies of {'; '.join(texts)}" if texts else "one copy of each CUDA library"
    )


@contextlib.contextmanager
def mapped(library: Library) -> Iterator[mmap.mmap]:
    """Map a library into memory."""
    with at(library.path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def gpu_code(library: Library) -> set[tuple[int, bool, str]]:
    """Return the architectures of a library's GPU code: number, whether it is PTX, and suffix `a` or `f`."""
    architectures = set()
    with mapped(library) as data:
        for start, size in library.gpu_code:
            position, end = start, start + size
            while position + FATBIN.size <= end:
                magic, _, header, length = FATBIN.unpack_from(data, position)
                if magic != FATBIN_MAGIC:
                    position = data.find(struct.pack("<I", FATBIN_MAGIC), position, end)
                    if position < 0:
                        break
                    continue
                entry, stop = position + header, min(position + header + length, end)
                while entry + ENTRY.size <= stop:
                    kind, _, header, payload, _, _, _, number, flags = ENTRY.unpack_from(data, entry)
                    if header < ENTRY.size:
                        break
                    suffix = "a" if flags & ARCHITECTURE_SPECIFIC else "f" if flags & FAMILY_SPECIFIC else ""
                    architectures.add((number, kind == PTX, suffix))
                    entry += header + payload
                position = stop
    return architectures


def runs_on(architecture: tuple[int, bool, str], gpu: int) -> bool:
    """Return whether GPU code runs on a GPU: PTX does on later ones, else the major version is the same."""
    number, is_ptx, suffix = architecture
    if number == gpu:
        return True
    if suffix == "a" or number > gpu:
        return False
    same_major = number // 10 == gpu // 10
    return same_major or (is_ptx and not suffix)


def check_gpu_code_fits_the_targets() -> str:
    """Each library with GPU code has some for the GPUs of the recipe's `targets`."""
    codes = {library.path: gpu_code(library) for library in image().roots if library.gpu_code}
    codes = {path: code for path, code in codes.items() if code}
    if not codes:
        # An image without GPU code: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    texts = {path: ", ".join(map(architecture_text, sorted(code))) for path, code in codes.items()}
    print(*(f"{path} has code for {text}" for path, text in texts.items()), sep="\n")
    targets: dict[str, str] = image().facts["targets"]
    if not targets:
        reason = (
            f"the recipe's `targets` name no instance type with GPUs; libraries with GPU code: {len(codes)}"
        )
        raise unittest.SkipTest(reason)
    problems = [
        f"{path} has code for {texts[path]}, but not for {instance} ({version}); "
        f"install a build for {version}, or remove {instance} from `targets`"
        for path, code in codes.items()
        if not image().matches("partial", path.rpartition("/")[2])
        for instance, version in targets.items()
        if not any(runs_on(item, int(version.replace(".", ""))) for item in code)
    ]
    return require(problems, f"libraries with code for {', '.join(targets)}: {len(codes)}")


def architecture_text(architecture: tuple[int, bool, str]) -> str:
    number, is_ptx, suffix = architecture
    return f"{number // 10}.{number % 10}{suffix}{'+PTX' if is_ptx else ''}"


IMPORT = """
import contextlib, ctypes, importlib, importlib.util, json, os, re, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
with contextlib.suppress(BaseException):
    import torch  # it loads libraries that other packages need

def load(name):
    try:
        importlib.import_module(name)
    except ImportError as raised:
        # The package may load such a library itself, before it imports the extension
        missing = re.match("([^/]+): cannot open shared object file", str(raised))
        sibling = missing and os.path.join(os.path.dirname(importlib.util.find_spec(name).origin), missing[1])
        if not sibling or sibling in loaded or not os.path.exists(sibling):
            raise
        loaded.append(sibling)
        ctypes.CDLL(sibling)
        load(name)

for name in sys.argv[1:]:
    loaded = []
    try:
        load(name)
        error = ""
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    print(json.dumps([name, error]), file=answers, flush=True)
"""
NOT_LOADED = re.compile(r"\.so\S*:|undefined symbol|version `.*' not found")
"""Texts of the loader's errors."""


def check_gpu_extensions_can_be_imported() -> str:
    """Python imports extensions that use the GPU, with a stub of the driver's libraries in place of them."""
    modules = {name: root for root in gpu_extensions() if (name := module_of(root))}
    if not modules:
        # An image without such extensions: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        write_stubs(modules.values(), directory)
        path = ":".join([directory, *image().library_path])
        while waiting := [name for name in modules if name not in errors]:
            process = subprocess.run(
                [sys.executable, "-c", IMPORT, *waiting],
                env={**os.environ, "LD_LIBRARY_PATH": path},
                stdout=subprocess.PIPE,
                encoding="utf-8",
                check=False,
            )
            errors.update(map(json.loads, process.stdout.splitlines()))
            # A crash must not hide the modules after it
            if stopped := next((name for name in waiting if name not in errors), ""):
                errors[stopped] = f"Python ended with code {process.returncode}"
    print(*(f"import {name}: {error or 'done'}" for name, error in errors.items()), sep="\n")
    problems = [
        f"{modules[name].path} cannot be imported: {error}; install a build of it for this image"
        for name, error in errors.items()
        if NOT_LOADED.search(error)
    ]
    imported = [name for name, error in errors.items() if not error]
    others = (
        f"; stopped by something else: {len(modules) - len(imported)}" if len(imported) < len(modules) else ""
    )
    return require(problems, f"imported: {', '.join(imported) or 'none'}{others}")


def module_of(extension: Library) -> str:
    """Return the module that loads an extension: itself, or a package that first loads other libraries."""
    packages: list[dict[str, str]] = image().facts["packages"]
    package = next((entry["module"] for entry in packages if re.search(entry["pattern"], extension.path)), "")
    match = MODULE.search(extension.path)
    return package or (match[1].replace("/", ".") if match else "")


def gpu_extensions() -> list[Library]:
    """Return the extensions of this Python that have GPU code or need the driver, or whose libraries do."""
    return [
        root
        for root in image().roots
        if root.is_in_package
        and not is_optional(root)
        and any(name.startswith(b"PyInit_") for name in root.exported)
        and (image().closure(root).host or any(item.gpu_code for item in image().closure(root).libraries))
    ]


def write_stubs(users: Iterable[Library], directory: str) -> None:
    """Compile stubs of the driver's libraries, with the functions that the users and their libraries need."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        reason = "the image has no C compiler to make a stub of the driver's libraries"
        raise unittest.SkipTest(reason)
    closures = [image().closure(user) for user in users]
    names = sorted({name for closure in closures for name in closure.host})
    symbols = sorted(
        {
            symbol.decode()
            for closure in closures
            if closure.host
            for library in closure.libraries
            for symbol, version in library.undefined
            if not version and DRIVER_FUNCTION.match(symbol) and symbol not in all_exported()
        }
    )
    # 100 is CUDA_ERROR_NO_DEVICE.
    source = "".join(f"int {symbol}(void) {{ return 100; }}\n" for symbol in symbols)
    for name in names:
        command = [
            compiler,
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{name}",
            "-o",
            f"{directory}/{name}",
            "-x",
            "c",
            "-",
        ]
        subprocess.run(command, input=source, encoding="utf-8", check=True)


def check_nccl_finds_a_plugin_that_fits() -> str:
    """NCCL finds its network plugin, can load it and accepts its interface; else it silently uses TCP."""
    nccl = taken_nccl()
    plugins = [item for item in image().roots if item.name.startswith("libnccl-net")]
    setting = image().environment.get("NCCL_NET_PLUGIN", "")
    if not plugins and not setting and not has_efa():
        # An image without EFA uses NCCL without a plugin: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    names = [
        candidate
        for name in setting.split(",")
        for candidate in ((name, f"libnccl-net-{name}.so") if name else ("libnccl-net.so",))
    ]
    plugin = next((item for name in names if (item := image().find(name, nccl))), None)
    if plugin is None:
        return require([plugin_missing(names, plugins, setting)])
    closure = image().closure(plugin)
    problems = [missing_text(user, name) for user, name in closure.missing]
    problems += [text for taken in closure.taken for text in version_problems(*taken)]
    with mapped(plugin) as data:
        match = PLUGIN_VERSION.search(data)
        version = match[1].decode() if match else ""
    problems += [
        f"{plugin.path} is aws-ofi-nccl {version}, which {entry['reason']}; {entry['hint']}"
        for entry in image().facts["plugins"]
        if version in entry["versions"]
    ]
    with mapped(nccl) as data:
        accepts = interfaces(INTERFACE.findall(data))
    has = interfaces(INTERFACE.findall(b"\n".join(plugin.exported)))
    common = has["Net"] & accepts["Net"]
    if not common:
        problems.append(
            f"{plugin.path} has interface {versions_text(has['Net'])}, but {nccl.path} accepts "
            f"{versions_text(accepts['Net'])}, so it uses TCP; install the plugin's release for this NCCL"
        )
    gin = has["Gin"] & accepts["Gin"]
    without = "" if gin or not accepts["Gin"] else ", no device-side networking (GIN)"
    return require(problems, f"{nccl.path} takes {plugin.path}, interface v{max(common, default=0)}{without}")


def taken_nccl() -> Library:
    """Return the NCCL that the framework loads, else the loader's own."""
    for library in sorted(image().roots, key=lambda item: not item.is_in_package):
        for _, name, taken in image().closure(library).taken:
            if name == "libnccl.so.2":
                return taken
    copies = image().named("libnccl.so.2")
    if not copies:
        # An image without NCCL: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    return image().find("libnccl.so.2", copies[0]) or copies[0]


def plugin_missing(names: list[str], plugins: list[Library], setting: str) -> str:
    """Return why NCCL finds no plugin, with a hint."""
    cause = f"NCCL opens {' or '.join(names)}, which the loader does not find, so it uses TCP"
    cause += f" (NCCL_NET_PLUGIN is {setting})" if setting else ""
    if not plugins:
        return f"{cause}; install aws-ofi-nccl{', or unset NCCL_NET_PLUGIN' if setting else ''}"
    directory, name = plugins[0].path.rpartition("/")[::2]
    rename = "" if name in names else f"set NCCL_NET_PLUGIN to {name}, and "
    return f"{cause}; the image has {plugins[0].path}: {rename}add {directory} to LD_LIBRARY_PATH"


def interfaces(names: Iterable[tuple[bytes, bytes]]) -> dict[str, set[int]]:
    """Return the versions of the network interface and of the device-side one."""
    versions: dict[str, set[int]] = {"Net": set(), "Gin": set()}
    for kind, number in names:
        versions[kind.decode()].add(int(number))
    return versions


def versions_text(versions: set[int]) -> str:
    return ", ".join(f"v{number}" for number in sorted(versions)) or "no version"
