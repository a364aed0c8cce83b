"""Makes base images out of a distribution's packages, with mmdebstrap: no image registry is asked.

Where these are locked, a base consists of exactly those files, wherever it is made: no mirror is asked, and
none is named in it.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from bakehouse.catalog.apt_lock import Deb
from bakehouse.engine.buildkit_events import Tail
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, EngineError
from bakehouse.fetch import apt_config
from bakehouse.plan.model import BootstrappedBase
from bakehouse.util import process as processes
from bakehouse.util.file_lock import exclusive
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import EPOCH
from bakehouse.util.tempdir import private_directory

_CREATED = "2026-01-01T00:00:00Z"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_COMPRESSION = 3
"""For 200 MB: 4 s against 12 s at zlib's own choice, and 4 % more bytes."""
_LEFT_OUT = ("doc", "man", "info", "locale", "lintian", "i18n")
_REMOVED = (
    "var/log/*", "var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/*-old", "var/lib/dpkg/*-old", "etc/*-", "etc/hostname", "etc/resolv.conf",
)  # fmt: skip
_REPOSITORY = "packages"
_NO_MIRRORS = "# The packages of this image are locked by sha256. To install others, name a mirror here."
_NETWORK = re.compile(
    r"Could not (?:resolve|connect)|Temporary failure|Connection (?:failed|timed out)|Cannot initiate"
)
_SIGNATURE = re.compile(r"NO_PUBKEY|is not signed|keyring .* does not exist")
_DISK = re.compile(r"No space left on device")


Get = Callable[[Sequence[Deb], Path], None]
"""Puts locked packages into a folder, each checked against its sha256."""


def ensure_base(
    base: BootstrappedBase, *, engine: Engine, state: Path, report: Callable[[str], None], get: Get
) -> None:
    """Make `base` unless the engine has it.

    The image appears whole or not at all; of two runs at once, one makes it and the other waits. Raises
    EngineError where this machine can't make it, BuildError where making it failed.
    """
    if engine.image(base.reference):
        return
    with exclusive(state / "bootstrap.lock", lambda: report("another run is making a base: waiting for it")):
        if not engine.image(base.reference):
            _make(base, state, report, get)


def _make(base: BootstrappedBase, state: Path, report: Callable[[str], None], get: Get) -> None:
    if shutil.which("mmdebstrap") is None:
        message = f"base `{base.reference}` is made with mmdebstrap, which is not on this machine"
        hint = "`apt-get install mmdebstrap`, on Debian or Ubuntu"
        raise EngineError(Diagnostic(message, hint=hint))
    mirrors = () if base.debs else apt_config.for_suite(base.suite, apt_config.sources())
    if not base.debs and not mirrors and not _KEYRING.exists():
        message = f"this machine has no key to check Debian `{base.suite}` with"
        raise EngineError(Diagnostic(message, hint="`apt-get install debian-archive-keyring`"))
    report(f"base {base.reference}: Debian {base.suite} with {', '.join(base.packages) or 'nothing more'}")
    with private_directory(state) as folder:
        if base.debs:
            get(base.debs, folder / _REPOSITORY)
            command = _command_locked(base, folder)
        else:
            command = _command(base, mirrors, folder)
        layer = _Layer(folder / "layer.tar.gz")
        environment = {"SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8"}
        if os.geteuid() == 0:
            environment["TMPDIR"] = str(folder)
        tail = Tail()
        # Told to stop, mmdebstrap would first finish; all it has written goes with the folder.
        with processes.running(
            command, environment=environment, stdout=subprocess.PIPE, gently=False
        ) as process:
            assert process.stdout
            assert process.stderr
            told = _Steps(base, tail, report)
            processes.read({process.stdout: layer.write, process.stderr: told.write}, lambda: None)
            code = process.wait()
        layer.close()
        if code != 0:
            raise _failure(base, tail.lines(), [mirror.url for mirror in mirrors])
        sizes = f"{format_bytes(layer.size)}, {format_bytes(layer.stored)} compressed"
        report(f"base {base.reference}: {sizes}; loading")
        _load(base, layer)


def _command(base: BootstrappedBase, mirrors: Sequence[apt_config.AptSource], folder: Path) -> list[str]:
    settings, source_list = folder / "apt.conf", folder / "sources.list"
    settings.write_text(apt_config.written(apt_config.settings()))
    source_list.write_text("".join(f"{mirror.line}\n" for mirror in mirrors))
    # apt's way to the mirrors is this machine's; the image keeps their bare addresses and nothing else of it.
    temporary = '"$1"/etc/apt/apt.conf.d/98machine'
    lists = '"$1"/etc/apt/sources.list.d/*.list'
    bare = f"sed 's#://[^/@]*@#://#' {lists} > \"$1\"/etc/apt/sources.list && rm {lists}"
    return [
        *_mmdebstrap("minbase", base.packages),
        f'--setup-hook=mkdir -p "$1"/etc/apt/apt.conf.d && cp {shlex.quote(str(settings))} {temporary}',
        f"--customize-hook=rm -rf {temporary} {_removed()}",
        *((f"--customize-hook={bare}",) if mirrors else ()),
        *((f"--keyring={_KEYRING}",) if _KEYRING.exists() else ()),
        base.suite,
        "-",
        # Without a list mmdebstrap takes Debian's own mirrors.
        *((str(source_list),) if mirrors else ()),
    ]


def _command_locked(base: BootstrappedBase, folder: Path) -> list[str]:
    """The base out of a repository on disk that has its packages and no others."""
    repository = (folder / _REPOSITORY).absolute()
    _index(repository, base)
    sources = '"$1"/etc/apt/sources.list'
    return [
        *_mmdebstrap("essential", [deb.name for deb in base.debs]),
        f"--customize-hook=rm -rf {_removed()} {sources}.d/*",
        f"--customize-hook=echo '{_NO_MIRRORS}' > {sources}",
        base.suite,
        "-",
        apt_config.folder_line(repository),
    ]


def _index(repository: Path, base: BootstrappedBase) -> None:
    """Write what makes a folder of packages a repository that apt reads."""
    stanzas = []
    for deb in base.debs:
        said = subprocess.run(
            ["dpkg-deb", "--field", deb.file], cwd=repository, capture_output=True, text=True, check=True
        ).stdout
        stanzas.append(f"{said}Filename: ./{deb.file}\nSize: {deb.bytes}\nSHA256: {deb.sha256}\n")
    packages = "\n".join(stanzas).encode()
    (repository / "Packages").write_bytes(packages)
    listed = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    release = f"Suite: {base.suite}\nCodename: {base.suite}\nArchitectures: amd64\nSHA256:\n{listed}"
    (repository / "Release").write_text(release)


def _mmdebstrap(variant: str, packages: Sequence[str]) -> list[str]:
    return [
        # In namespaces of their own neither its mounts nor what it started outlive it.
        *(("unshare", "--mount", "--pid", "--fork", "--kill-child", "--") if os.geteuid() == 0 else ()),
        "mmdebstrap",
        f"--variant={variant}",
        "--architectures=amd64",
        *((f"--include={','.join(packages)}",) if packages else ()),
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--dpkgopt=force-unsafe-io",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
    ]


def _removed() -> str:
    """What differs from one run to the next, as words for a shell."""
    return " ".join(f'"$1"/{pattern}' for pattern in _REMOVED)


class _Layer:
    """A tar stream on its way to become a compressed layer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.stored = 0
        self._sha256 = hashlib.sha256()
        self._file = path.open("wb")
        self._gzip = zlib.compressobj(_COMPRESSION, zlib.DEFLATED, 31)

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._sha256.update(data)
        self._file.write(self._gzip.compress(data))

    def close(self) -> None:
        self._file.write(self._gzip.flush())
        self.stored = self._file.tell()
        self._file.close()

    @property
    def diff_id(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"


class _Steps:
    """mmdebstrap's log: its own steps are told, what others say is kept for a failure."""

    def __init__(self, base: BootstrappedBase, tail: Tail, report: Callable[[str], None]) -> None:
        self._base, self._tail, self._report = base, tail, report
        self._open = ""

    def write(self, data: bytes) -> None:
        *lines, self._open = (self._open + data.decode(errors="replace")).split("\n")
        for line in lines:
            if not line.startswith("I: "):
                self._tail.add(f"{line}\n")
            elif line.endswith("..."):
                self._report(f"base {self._base.reference}: {line[3:-3]}")


def _load(base: BootstrappedBase, layer: _Layer) -> None:
    """Give the engine an image of one layer; unlike `docker import`, the same one for the same bytes."""
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": _CREATED,
            "config": {"Env": [_PATH], "Cmd": ["bash"], "Labels": {"org.bakehouse.base": base.reference}},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
            "history": [{"created": _CREATED, "created_by": f"mmdebstrap {base.suite}"}],
        },
        sort_keys=True,
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    listed = {"Config": name, "RepoTags": [base.reference], "Layers": [layer.path.name]}
    manifest = json.dumps([listed]).encode()
    tail = Tail()
    with processes.running(["docker", "load", "--quiet"], stdin=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stderr
        with contextlib.suppress(BrokenPipeError), tarfile.open(mode="w|", fileobj=process.stdin) as archive:
            for file, content in (("manifest.json", manifest), (name, config)):
                _add(archive, file, io.BytesIO(content), len(content))
            with layer.path.open("rb") as stream:
                _add(archive, layer.path.name, stream, layer.stored)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        processes.read({process.stderr: lambda data: tail.add(data.decode(errors="replace"))}, lambda: None)
        if process.wait() != 0:
            message = f"the engine did not take base `{base.reference}`"
            raise BuildError(Diagnostic(message, tail=tail.lines()))


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    archive.addfile(entry, content)


def _failure(base: BootstrappedBase, tail: Sequence[str], mirrors: Sequence[str]) -> BuildError:
    said = "\n".join(tail)
    message, hint = f"base `{base.reference}` could not be made", ""
    if _DISK.search(said):
        hint = "the disk is full; `docker system df` shows what fills it"
    elif _NETWORK.search(said):
        message = f"base `{base.reference}` could not be made: a mirror of `{base.suite}` can't be reached"
        hint = "the mirrors are those of this machine's apt: see that `apt-get update` works"
    elif _SIGNATURE.search(said):
        message = f"base `{base.reference}` could not be made: nobody vouches for a mirror of `{base.suite}`"
        hint = "`apt-get install debian-archive-keyring`"
    elif os.geteuid() != 0:
        hint = "run it as root, or give your user subordinate ids (see `man subuid`)"
    facts = tuple(("mirror", url) for url in dict.fromkeys(map(_without_credentials, mirrors)))
    return BuildError(Diagnostic(message, facts=facts, tail=tuple(tail), hint=hint))


def _without_credentials(url: str) -> str:
    return re.sub(r"(?<=://)[^/@]*@", "", url)
