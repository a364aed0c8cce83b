"""Makes stand-ins: small files of the shape of parts that can't be had here, the same bytes every time.

A component says what its own are like in `stubs/<artifact or package>/`: a tree of files, in which
`@version@`, and `@name@` of what it provides, are filled in; `file` there is what is no archive. Others get
what any source or wheel has.
"""

import base64
import bz2
import hashlib
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from bakehouse.build.stub_plan import StubFile
from bakehouse.catalog.project import HOME
from bakehouse.util.files import write_whole
from bakehouse.util.oci import EPOCH, Sha256

_ARCHIVES: Mapping[str, Callable[[bytes], bytes]] = {
    ".tar.gz": lambda data: _gzip(data),
    ".tgz": lambda data: _gzip(data),
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
    ".tar": bytes,
}
_HOLE = re.compile(rb"@([a-z0-9_.-]+)@")
GENERIC = HOME / "templates" / "stubs"
NOTHING = "bakehouse-rehearsal-nothing"
_VERSION = "0~rehearsal"
_APT_ALIASES = (
    # A distribution's package of another Python is this one's, under that name
    (re.compile(r"(?P<lib>lib)?python3\.(?P<minor>\d+)(?P<rest>-[a-z-]+)?"), "{lib}python3{rest}"),
    (re.compile(r"(?P<name>gcc|g\+\+|gfortran|cpp|clang)-\d+"), "{name}"),
)

Tree = dict[str, tuple[bytes, int]]
"""Files by path, with their modes; a link has mode 0 and its target for content."""


def make_all(needs: Iterable[StubFile], folder: Path) -> dict[StubFile, Sha256]:
    """Make stand-ins at `folder`/<sha256>/<file>; gives their checksums."""
    made = {}
    for need in needs:
        data = make(need)
        digest = Sha256(hashlib.sha256(data).hexdigest())
        place = folder / digest / need.file
        if not place.is_file():
            write_whole(place, data)
        made[need] = digest
    return made


def make(need: StubFile) -> bytes:
    """The bytes of one stand-in."""
    if need.file.endswith(".whl"):
        return _wheel(need)
    own = _own_tree(need)
    if need.kind == "sdist":
        return _packed(need, own or _filled(_tree(GENERIC / "sdist"), need), top=_stem(need.file))
    # What an artifact is that is no archive
    file = own.pop("file", None)
    if need.file.endswith(".deb"):
        return _deb(need.file.split("_")[0], need.file.split("_")[1], own)
    if not any(need.file.endswith(end) for end in (*_ARCHIVES, ".zip")):
        return (file or _filled(_tree(GENERIC / "program"), need)["program"])[0]
    tree = own or _filled(_tree(GENERIC / "source"), need)
    return _packed(need, tree, top="" if own else _stem(need.file))


def has_own(need: StubFile) -> bool:
    """Whether the need's component says what its stand-in is like."""
    return bool(_own_folders(need))


def _packed(need: StubFile, tree: Tree, top: str) -> bytes:
    tree = {f"{top}/{path}" if top else path: one for path, one in tree.items()}
    if need.file.endswith(".zip"):
        return _zip(tree)
    return next(pack for end, pack in _ARCHIVES.items() if need.file.endswith(end))(tar(tree))


def tar(tree: Mapping[str, tuple[bytes, int]]) -> bytes:
    """An archive of a tree, with all its folders; a link has mode 0."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = sorted({str(parent) for path in tree for parent in Path(path).parents} - {"."})
        for path in folders:
            _add(archive, path, b"", 0o755, tarfile.DIRTYPE)
        for path, (data, mode) in sorted(tree.items()):
            _add(archive, path, data, mode or 0o777, tarfile.REGTYPE if mode else tarfile.SYMTYPE)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, data: bytes, mode: int, kind: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, EPOCH
    if kind == tarfile.SYMTYPE:
        entry.linkname, data = data.decode(), b""
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _gzip(data: bytes) -> bytes:
    """Stored, not compressed: the same bytes with every zlib."""
    pressed = zlib.compressobj(0, zlib.DEFLATED, 31)
    return pressed.compress(data) + pressed.flush()


def _zip(tree: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, (data, mode) in sorted(tree.items()):
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _wheel(need: StubFile) -> bytes:
    """A wheel with the right name, tags and metadata, and an importable package that knows its version."""
    name, version, *tags = need.file.removesuffix(".whl").split("-")
    python, abi, platforms = tags[-3:]
    info = f"{name}-{version}.dist-info"
    lines = [f"Tag: {one}-{abi}-{two}" for one in python.split(".") for two in platforms.split(".")]
    module = name.lower() if name.isidentifier() else re.sub(r"\W", "_", name.lower())
    tree: Tree = {
        f"{module}/__init__.py": (f'"""A stand-in."""\n\n__version__ = "{version}"\n'.encode(), 0o644),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            "Summary: a stand-in of Bakehouse, which takes the place of the real package in a rehearsal\n"
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
        # What a stage drops lies below its Python's prefix: the wheel's `data` goes there
        site = re.fullmatch(r"[^/]+/[^/]+/lib/python[^/]*/site-packages/(.+)", pattern)
        below = _example(site[1] if site else pattern.partition("/")[2].partition("/")[2])
        if below:
            is_file = "." in below.rpartition("/")[2].removeprefix("python3.")
            path = below if is_file else f"{below}/stand-in"
            tree[path if site else f"{name}-{version}.data/data/{path}"] = (b"", 0o644)
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, (data, _) in sorted(tree.items())
    )
    tree[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    return _zip(tree)


def _example(pattern: str) -> str:
    """A name that a pattern of `glob` matches."""
    return re.sub(r"\[(.).*?\]", r"\1", pattern).replace("*", "x").replace("?", "x")


def unpacked(wheel: bytes) -> Tree:
    """The files of a wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return {one.filename: (archive.read(one), 0o644) for one in archive.infolist()}


def _own_folders(need: StubFile) -> list[Path]:
    """Where the component says what its stand-in is like, the general first."""
    names = [need.name, str(canonicalize_name(need.name))]
    if need.kind == "artifact" and need.file.endswith(".whl"):
        names.append(str(canonicalize_name(need.file.split("-")[0])))
    folders = [need.folder / "stubs" / name for name in dict.fromkeys(names)]
    return [folder for folder in folders if folder.is_dir()]


def _own_tree(need: StubFile) -> Tree:
    tree: Tree = {}
    for folder in _own_folders(need):
        tree |= _tree(folder)
    return _filled(tree, need)


def _tree(folder: Path) -> Tree:
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = (str(path.readlink()).encode(), 0)
        elif path.is_file():
            found[name] = (path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    return found


def _filled(tree: Tree, need: StubFile) -> Tree:
    values = {**dict(need.facts), **dict(need.part.provides)}
    values |= {"component": need.part.component, "release": need.part.version, "variant": need.part.variant}
    values |= {"name": need.name, "version": need.version, "file": need.file}
    values["number"] = str(_number(need.version))
    values["python"] = _python_tag(need) or values.get("python", "")

    def fill(found: re.Match[bytes]) -> bytes:
        value = values.get(found[1].decode())
        return found[0] if value is None else value.encode()

    return {
        _HOLE.sub(fill, path.encode()).decode(): (_HOLE.sub(fill, data), mode)
        for path, (data, mode) in tree.items()
    }


def _number(version: str) -> int:
    """A version as NCCL and others tell it: 2.10.3 is 21003."""
    parts = [int(one) for one in re.findall(r"\d+", version)[:3]]
    major, minor, patch = [*parts, 0, 0, 0][:3]
    return major * 10000 + minor * 100 + patch


def _python_tag(need: StubFile) -> str:
    """`3.10` for a file that is made for CPython 3.10, as its name says."""
    found = re.search(r"cpython-(3\.\d+)|-cp3(\d+)-", need.file)
    return (found[1] or f"3.{found[2]}") if found else ""


def _stem(file: str) -> str:
    return next((file.removesuffix(end) for end in (*_ARCHIVES, ".zip") if file.endswith(end)), file)


def apt_repository(names: Iterable[str], folder: Path) -> None:
    """Empty packages for names that a distribution may not have, in a repository that apt reads.

    Their version is lower than any: where the distribution has the package, apt takes that one.
    """
    stanzas = []
    for asked in sorted({*names, NOTHING}):
        name, _, version = asked.partition("=")
        data = debian_package(name, version or _VERSION)
        file = f"{name}_{(version or _VERSION).replace(':', '-')}_amd64.deb"
        write_whole(folder / file, data)
        digest = hashlib.sha256(data).hexdigest()
        control = _control(name, version or _VERSION)
        stanzas.append(f"{control}Filename: ./{file}\nSize: {len(data)}\nSHA256: {digest}\n")
    write_whole(folder / "Packages", "\n".join(stanzas))


def _control(name: str, version: str) -> str:
    depends = _alias(name)
    needs = f"Depends: {depends} | {NOTHING}\n" if depends else ""
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Bakehouse <none@localhost>\n"
        f"{needs}Section: misc\nPriority: optional\n"
        "Description: a stand-in of Bakehouse for a package of another distribution\n"
    )


def _alias(name: str) -> str:
    for pattern, text in _APT_ALIASES:
        if found := pattern.fullmatch(name):
            words = {key: value or "" for key, value in found.groupdict().items()}
            return text.format(**words)
    return ""


def debian_package(name: str, version: str) -> bytes:
    """A package that has nothing in it but what its name promises."""
    tree: Tree = {}
    if found := re.fullmatch(r"python3\.(\d+)(?:-minimal)?", name):
        tree[f"usr/bin/python3.{found[1]}"] = (b"python3", 0)
    elif re.fullmatch(r"(gcc|g\+\+|gfortran|cpp|clang)-\d+", name):
        tree[f"usr/bin/{name}"] = (name.rpartition("-")[0].encode(), 0)
    return _deb(name, version, tree)


def _deb(name: str, version: str, tree: Tree) -> bytes:
    tree = {**tree, f"usr/share/bakehouse-rehearsal/{name}": (f"{name} {version}\n".encode(), 0o644)}
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _gzip(tar({"control": (_control(name, version).encode(), 0o644)})),
        "data.tar.gz": _gzip(tar(tree)),
    }
    parts = [b"!<arch>\n"]
    for file, data in members.items():
        head = f"{file:<16}{EPOCH:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        parts += [head, data, b"\n" if len(data) % 2 else b""]
    return b"".join(parts)
