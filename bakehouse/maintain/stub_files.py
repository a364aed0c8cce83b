"""Stubs: small files that replace unavailable downloads, with the same bytes every time.

A component can define its stubs in `stubs/<artifact or package>/`: a tree of files with placeholders such
as `@version@` and the names that it provides. `NAME.link` contains the target of the symbolic link `NAME`,
because wheels cannot contain links. A file named `file` is the stub of a download that is not an archive.
Other downloads get a generic stub.
"""

import base64
import bz2
import hashlib
import io
import lzma
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from bakehouse.catalog.project import HOME
from bakehouse.maintain.stub_plan import StubFile
from bakehouse.util.archive import Tree, gzip, tar
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.oci import EPOCH, Sha256

_ARCHIVES: Mapping[str, Callable[[bytes], bytes]] = {
    ".tar.gz": gzip,
    ".tgz": gzip,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
    ".tar": bytes,
}
_HOLE = re.compile(rb"@([a-z0-9_.-]+)@")
GENERIC = HOME / "templates" / "stubs"
NOTHING = "bakehouse-rehearsal-nothing"
_VERSION = "0~rehearsal"
_APT_ALIASES = (
    # A package of another Python version depends on the Python of this Debian release.
    (re.compile(r"(?P<lib>lib)?python3\.(?P<minor>\d+)(?P<rest>-[a-z-]+)?"), "{lib}python3{rest}"),
    (re.compile(r"(?P<name>gcc|g\+\+|gfortran|cpp|clang)-\d+"), "{name}"),
)


def make_all(needs: Iterable[StubFile], directory: Path) -> dict[StubFile, Sha256]:
    """Create stubs at `directory`/<sha256>/<file>, and return their checksums."""
    digests = {}
    for need in needs:
        data = make(need)
        digest = Sha256(hashlib.sha256(data).hexdigest())
        path = directory / digest / need.file
        if not path.is_file():
            write_whole(path, data)
        digests[need] = digest
    return digests


def make(need: StubFile) -> bytes:
    """Return the bytes of a stub."""
    if need.file.endswith(".whl"):
        return _wheel(need)
    own = _own_tree(need)
    if need.kind == "sdist":
        return _packed(need, own or _filled(_tree(GENERIC / "sdist"), need), top=_stem(need.file))
    # The content of an artifact that is not an archive.
    file = own.pop("file", None)
    if need.file.endswith(".deb"):
        return _deb(need.file.split("_")[0], need.file.split("_")[1], own)
    if not any(need.file.endswith(end) for end in (*_ARCHIVES, ".zip")):
        return (file or _filled(_tree(GENERIC / "program"), need)["program"])[0]
    tree = own or _filled(_tree(GENERIC / "source"), need)
    return _packed(need, tree, top="" if own else _stem(need.file))


def _packed(need: StubFile, tree: Tree, top: str) -> bytes:
    tree = {f"{top}/{path}" if top else path: entry for path, entry in tree.items()}
    if need.file.endswith(".zip"):
        return _zip(tree)
    return next(pack for end, pack in _ARCHIVES.items() if need.file.endswith(end))(tar(tree))


def _zip(tree: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, (data, mode) in sorted(tree.items()):
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _wheel(need: StubFile) -> bytes:
    """Return a wheel with the right name, tags and metadata, and an importable package with its version."""
    name, version, *tags = need.file.removesuffix(".whl").split("-")
    python, abi, platforms = tags[-3:]
    info = f"{name}-{version}.dist-info"
    lines = [f"Tag: {tag}-{abi}-{platform}" for tag in python.split(".") for platform in platforms.split(".")]
    module = name.lower() if name.isidentifier() else re.sub(r"\W", "_", name.lower())
    tree: Tree = {
        f"{module}/__init__.py": (f'"""A stub."""\n\n__version__ = "{version}"\n'.encode(), 0o644),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            "Summary: a stub of Bakehouse, which replaces the real package in a rehearsal\n"
            "License: none\n".encode(),
            0o644,
        ),
        f"{info}/WHEEL": (
            "\n".join(
                ["Wheel-Version: 1.0", "Generator: bakehouse", "Root-Is-Purelib: false", *lines, ""]
            ).encode(),
            0o644,
        ),
    }
    tree |= _own_tree(need)
    for pattern in need.dropped:
        # A stage removes files below its Python's prefix, where the wheel's `data` is installed.
        site = re.fullmatch(r"[^/]+/[^/]+/lib/python[^/]*/site-packages/(.+)", pattern)
        name_below = _example(site[1] if site else pattern.partition("/")[2].partition("/")[2])
        if name_below:
            is_file = "." in name_below.rpartition("/")[2].removeprefix("python3.")
            path = name_below if is_file else f"{name_below}/stub"
            tree[path if site else f"{name}-{version}.data/data/{path}"] = (b"", 0o644)
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, (data, _) in sorted(tree.items())
    )
    tree[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    return _zip(tree)


def _example(pattern: str) -> str:
    """Return a name that a glob pattern matches."""
    return re.sub(r"\[(.).*?\]", r"\1", pattern).replace("*", "x").replace("?", "x")


def unpacked(wheel: bytes) -> Tree:
    """Return the files of a wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return {entry.filename: (archive.read(entry), 0o644) for entry in archive.infolist()}


def _own_directories(need: StubFile) -> list[Path]:
    """Return the directories of the component's stub, the most general first."""
    names = [need.name, str(canonicalize_name(need.name))]
    if need.kind == "artifact" and need.file.endswith(".whl"):
        names.append(str(canonicalize_name(need.file.split("-")[0])))
    directories = [need.directory / "stubs" / name for name in dict.fromkeys(names)]
    return [directory for directory in directories if directory.is_dir()]


def _own_tree(need: StubFile) -> Tree:
    tree: Tree = {}
    for directory in _own_directories(need):
        tree |= _tree(directory)
    return _filled(tree, need)


def _tree(directory: Path) -> Tree:
    tree: Tree = {}
    for path in sorted(directory.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        name = path.relative_to(directory).as_posix()
        if path.suffix == ".link":
            tree[name.removesuffix(".link")] = (read_bytes(path), 0)
        elif path.is_file():
            tree[name] = (read_bytes(path), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    return tree


def _filled(tree: Tree, need: StubFile) -> Tree:
    values = {**dict(need.facts), **dict(need.part.provides)}
    values |= {"component": need.part.component, "release": need.part.version, "variant": need.part.variant}
    values |= {"name": need.name, "version": need.version, "file": need.file}
    values["number"] = str(_number(need.version))
    values["python"] = _python_tag(need) or values.get("python", "")

    def fill(match: re.Match[bytes]) -> bytes:
        value = values.get(match[1].decode())
        return match[0] if value is None else value.encode()

    return {
        _HOLE.sub(fill, path.encode()).decode(): (_HOLE.sub(fill, data), mode)
        for path, (data, mode) in tree.items()
    }


def _number(version: str) -> int:
    """Return a version as a number, as NCCL and others do: 2.10.3 is 21003."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:3]]
    major, minor, patch = [*parts, 0, 0, 0][:3]
    return major * 10000 + minor * 100 + patch


def _python_tag(need: StubFile) -> str:
    """Return the CPython version in a file name, such as `3.10`; empty without one."""
    match = re.search(r"cpython-(3\.\d+)|-cp3(\d+)-", need.file)
    return (match[1] or f"3.{match[2]}") if match else ""


def _stem(file: str) -> str:
    return next((file.removesuffix(end) for end in (*_ARCHIVES, ".zip") if file.endswith(end)), file)


def apt_repository(names: Iterable[str], directory: Path) -> None:
    """Write an apt repository of empty packages, for names that Debian may not have.

    Their version is lower than any other, so apt prefers Debian's package if there is one.
    """
    stanzas = []
    for requirement in sorted({*names, NOTHING}):
        name, _, version = requirement.partition("=")
        data = debian_package(name, version or _VERSION)
        file = f"{name}_{(version or _VERSION).replace(':', '-')}_amd64.deb"
        write_whole(directory / file, data)
        digest = hashlib.sha256(data).hexdigest()
        control = _control(name, version or _VERSION)
        stanzas.append(f"{control}Filename: ./{file}\nSize: {len(data)}\nSHA256: {digest}\n")
    write_whole(directory / "Packages", "\n".join(stanzas))


def _control(name: str, version: str) -> str:
    depends = _alias(name)
    needs = f"Depends: {depends} | {NOTHING}\n" if depends else ""
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Bakehouse <none@localhost>\n"
        f"{needs}Section: misc\nPriority: optional\n"
        "Description: a stub of Bakehouse for a package of another distribution\n"
    )


def _alias(name: str) -> str:
    for pattern, text in _APT_ALIASES:
        if match := pattern.fullmatch(name):
            groups = {key: value or "" for key, value in match.groupdict().items()}
            return text.format(**groups)
    return ""


def debian_package(name: str, version: str) -> bytes:
    """Return a package that contains only the programs of its name."""
    tree: Tree = {}
    if match := re.fullmatch(r"python3\.(\d+)(?:-minimal)?", name):
        tree[f"usr/bin/python3.{match[1]}"] = (b"python3", 0)
    elif re.fullmatch(r"(gcc|g\+\+|gfortran|cpp|clang)-\d+", name):
        tree[f"usr/bin/{name}"] = (name.rpartition("-")[0].encode(), 0)
    return _deb(name, version, tree)


def _deb(name: str, version: str, tree: Tree) -> bytes:
    tree = {**tree, f"usr/share/bakehouse-rehearsal/{name}": (f"{name} {version}\n".encode(), 0o644)}
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": gzip(tar({"control": (_control(name, version).encode(), 0o644)})),
        "data.tar.gz": gzip(tar(tree)),
    }
    chunks = [b"!<arch>\n"]
    for file, data in members.items():
        head = f"{file:<16}{EPOCH:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        chunks += [head, data, b"\n" if len(data) % 2 else b""]
    return b"".join(chunks)
