"""Locks of Python packages: requirements with all dependencies, each package as the one file to install.

uv resolves them from the indexes that pip uses on this machine. A lock names no index.
"""

import functools
import json
import os
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from uv import find_uv_bin

from bakehouse.catalog.python_lock import Package
from bakehouse.errors import BuildError, ConflictError, Reason
from bakehouse.fetch.connection import redacted
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock import interpreter
from bakehouse.lock.index_conflicts import ChosenFile, refuse_conflicts
from bakehouse.util.files import read_text
from bakehouse.util.format import format_names
from bakehouse.util.oci import ARM64, PLATFORM
from bakehouse.util.suggest import nearest
from bakehouse.util.tempdir import scratch_directory

_MACHINES = {PLATFORM: "x86_64", ARM64: "aarch64"}
_GLIBC = 28
_ALIASES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_MAX_CONCURRENT_REQUESTS = 8
_NO_SOLUTION = 1
"""uv's exit code if no versions fit; it differs for an unreachable index."""
_NOT_FOUND = re.compile(r"(\S+) was not found in the (?:package registry|provided package locations)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NEEDS_BACKEND = re.compile(r"Failed to (?:download and )?build `([^`]+)`")
_WITH_DEPENDENTS = (
    "--format=requirements.txt",
    "--annotation-style=line",
    "--no-header",
    "--no-strip-extras",
)
_DEPENDENTS = re.compile(r"([A-Za-z0-9._-]+)\S* .*# via (.+)")
_INDEX_HINT = "the indexes of this machine's pip are used; run `pip config list` to see them"


@dataclass(frozen=True, slots=True)
class Metadata:
    """Requirements of a package, as its build backend states them."""

    name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str
    build_requires: tuple[str, ...] = ()
    """Build requirements, also those that the backend asks for itself."""

    @property
    def table(self) -> str:
        """Entry of uv's setting `dependency-metadata`."""
        rows = {
            "name": self.name,
            "version": self.version,
            "requires-dist": [str(Requirement(text)) for text in self.requires],
            **({"requires-python": self.requires_python} if self.requires_python else {}),
        }
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())
        return f"[[dependency-metadata]]\n{''.join(lines)}"


def no_engine(requirement: str, file: Package, index: "Index") -> Metadata:
    """Refuse to run a build backend."""
    message = f"the requirements of `{requirement}` are unknown"
    reason = "its metadata is not static, so its build backend must run, and no container engine answers"
    raise BuildError(
        message,
        reasons=(Reason(reason),),
        hint=(
            "start a container engine, or set `build_on_host = true` in [tool.bakehouse] to run the code of "
            "packages on this machine"
        ),
    )


def unknown_build(requirement: str, file: Package, index: "Index") -> None:
    """Leave build requirements unknown."""


RunBackend = Callable[[str, Package, "Index"], Metadata]
"""Returns the metadata of a source distribution, given its requirement and file. Raises BuildError."""
RunForBuild = Callable[[str, Package, "Index"], Metadata | None]
"""Returns the metadata with the build requirements; None if no engine is available to find them."""


@dataclass(frozen=True, slots=True)
class Index:
    """Package indexes, and the Python version to resolve for."""

    pip: PipConfig
    certificates: Path | None
    python_version: str = "3.11"
    locked: frozenset[str] = frozenset()
    """The sha256 sums of the files of the present lock."""
    platform: str = PLATFORM
    run_backend: RunBackend | None = no_engine
    """None to let uv run build backends on this machine."""
    options: tuple[str, ...] = ()
    """Further options of uv, from the requirements file."""
    searched_by_builds: PipConfig | None = None
    """Indexes that builds search, if requirements name others; None if these are those of `pip`."""
    run_for_build: RunForBuild = unknown_build
    downloads: Path | None = None
    """Directory of downloaded files, by sha256."""
    metadata: dict[str, Metadata] = field(default_factory=dict, compare=False)
    """Metadata that build backends stated, by requirement. The copies of an index share it."""
    results: dict[object, list[Mapping[str, Any]]] = field(default_factory=dict, compare=False)
    """Packages that uv chose, by its input, because many images of a matrix have the same requirements."""


def lock_text(heading: str, files: Iterable[Package]) -> str:
    """Return the text of a lock: a heading, then a line for each package."""
    return "".join(f"{line}\n" for line in (heading, *(file.line for file in files)))


def resolve(
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
    *,
    alone: bool = False,
    without: Sequence[str] = (),
    preferred: Iterable[Package] = (),
    only_wheels: bool = False,
) -> tuple[Package, ...]:
    """Return the newest versions that fit together, as wheels for CPython on 64-bit Linux, else as sdists.

    `alone` leaves out dependencies. `without` names installed packages, which are left out together with
    dependencies that only they need. Where several versions fit, a `preferred` package keeps its version.
    `only_wheels` leaves out versions without a wheel. Raises ConflictError with uv's output if no versions
    fit, and BuildError if an index is unreachable or indexes have different projects of one name.
    """
    if only_wheels:
        packages = _run_uv(requirements, constraints, index, (), (), options=("--no-build",))
    else:
        packages = _compile(
            requirements, constraints, index, (), alone=alone, without=without, preferred=preferred
        )
    return files_of(packages, index, requirements)


def resolve_beside(
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
    installed: Sequence[Package],
    *,
    without: Sequence[str] = (),
    preferred: Iterable[Package] = (),
    only_wheels: bool = False,
) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """Resolve like `resolve`, but next to `installed` packages, which have to fit.

    Return the files of the other packages, and the installed packages that are needed. No index needs to have
    the installed packages.
    """
    if only_wheels:
        packages = _run_uv(requirements, constraints, index, installed, (), options=("--no-build",))
    else:
        packages = _compile(requirements, constraints, index, installed, without=without, preferred=preferred)
    by_name = {canonicalize_name(package.name): package for package in installed}
    left = [package for package in packages if canonicalize_name(package["name"]) not in by_name]
    names = {canonicalize_name(package["name"]) for package in packages}
    return files_of(left, index, requirements), tuple(
        package for name, package in by_name.items() if name in names
    )


def files_of(
    packages: Iterable[Mapping[str, Any]], index: Index, requirements: Iterable[str]
) -> tuple[Package, ...]:
    """Return the file to install of each package."""
    tags = python_tags(index.python_version, index.platform)
    chosen = [
        (package["name"], package["version"], _choose(package, tags, index.platform)) for package in packages
    ]
    for name, version, file in chosen:
        if "sha256" not in file.get("hashes", {}):
            raise BuildError(
                f"the lock has no sha256 of `{name}` {version}",
                hint="make the lock again with a tool that records sha256 sums, such as uv",
            )
    downloads = DownloadConfig((), index.pip, index.certificates, os.environ)
    of_indexes = [
        ChosenFile(canonicalize_name(name), version, file["url"], file["hashes"]["sha256"])
        for name, version, file in chosen
        if "origin" not in file and file.get("url", "").startswith(("http://", "https://"))
    ]
    refuse_conflicts(of_indexes, requirements, index.locked, downloads)
    with ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS) as pool:
        sizes = pool.map(lambda item: _size(item[2], downloads), chosen)
    files = [
        Package(
            canonicalize_name(name),
            version,
            file["hashes"]["sha256"],
            _file_name(file),
            size,
            origin=file.get("origin") or ("" if _is_found(name, file, index) else _place(file)),
        )
        for (name, version, file), size in zip(chosen, sizes, strict=True)
    ]
    return tuple(sorted(files, key=lambda file: file.name))


def _is_found(name: str, file: Mapping[str, Any], index: Index) -> bool:
    """Return whether builds find a file, because it is in an index of this machine."""
    if index.searched_by_builds is None:
        return True
    downloads = DownloadConfig((), index.searched_by_builds, index.certificates, os.environ)
    try:
        pages = downloads.pages(name)
    except SourceError as error:
        raise BuildError(f"cannot search the package indexes for `{name}`: {error.reason}") from error
    chosen = ChosenFile(name, "", _place(file), file["hashes"]["sha256"])
    return any(chosen.is_at(link) for links in pages.values() for link in links)


def _place(file: Mapping[str, Any]) -> str:
    """Return the URL of a file, or its path."""
    url = str(file.get("url") or file["path"])
    return url2pathname(urlsplit(url).path) if url.startswith("file:") else url


def versions(
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
    *,
    installed: Sequence[Package] = (),
    preferred: Iterable[Package] = (),
) -> dict[str, str]:
    """Return the versions that fit together, by normal name. Raises like `resolve`.

    No index needs to have the `installed` packages. Where several versions fit, a `preferred` package keeps
    its version.
    """
    packages = _compile(requirements, constraints, index, installed, preferred=preferred)
    return {canonicalize_name(package["name"]): package["version"] for package in packages}


def requires_another(
    names: Collection[str],
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
    installed: Sequence[Package] = (),
) -> bool:
    """Return whether a package requires another of them, maybe through others. Raises like `resolve`."""
    rows = _run_uv(requirements, constraints, index, installed, (), options=_WITH_DEPENDENTS)
    dependents = {
        canonicalize_name(row["name"]): {
            canonicalize_name(name.partition("[")[0]) for name in row["dependents"]
        }
        for row in rows
    }
    for name in names:
        seen: set[str] = set()
        todo = {*dependents.get(canonicalize_name(name), ())}
        while todo:
            seen |= todo
            todo = {each for parent in todo for each in dependents.get(canonicalize_name(parent), ())} - seen
        if seen & {*names} - {name}:
            return True
    return False


def _compile(
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
    installed: Sequence[Package],
    *,
    alone: bool = False,
    without: Sequence[str] = (),
    preferred: Iterable[Package] = (),
) -> list[Mapping[str, Any]]:
    """Return the locked packages, preferred ones in their version where it fits."""
    options = ("--no-deps",) if alone else ()
    compile_with = functools.partial(
        _run_uv, requirements, constraints, index, installed, without=without, options=options
    )
    newest = compile_with(())
    # uv takes a preferred version from the first index that has it, and rejects it if the wheel for this
    # Python is in another one. Versions that are chosen anyway therefore get no preference.
    versions = {canonicalize_name(package["name"]): package["version"] for package in newest}
    older = [
        package for package in preferred if versions.get(canonicalize_name(package.name)) != package.version
    ]
    try:
        return compile_with(older) if older else newest
    except ConflictError:
        return newest


def _run_uv(
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
    installed: Sequence[Package],
    preferred: Iterable[Package],
    *,
    without: Sequence[str] = (),
    options: Sequence[str] = (),
) -> list[Mapping[str, Any]]:
    """Return the packages of the PEP 751 lock that uv writes and that the environment needs; cached.

    uv runs no build backend unless the index allows it. It stops at a package whose backend must run, and
    starts again with the metadata.
    """
    preferred = tuple(preferred)
    names = (tuple((package.name, package.version) for package in group) for group in (installed, preferred))
    key = (*map(tuple, (requirements, constraints, without, options)), *names, index)
    if key in index.results:
        return index.results[key]
    with scratch_directory() as directory:
        output = directory / "pylock.toml"
        pins = [f"{package.name}=={package.version}" for package in installed]
        inputs = {"requirements": requirements, "constraints": [*constraints, *pins], "excludes": without}
        paths = {kind: directory / f"{kind}.txt" for kind in inputs}
        for kind, lines in inputs.items():
            paths[kind].write_text("".join(f"{line}\n" for line in lines))
        # uv keeps the versions of an existing output where it can
        if rows := _preferences(preferred):
            output.write_text(rows)
        python = interpreter.find(index.python_version)
        if index.run_backend:
            python = interpreter.write_powerless(python, directory)
        settings = directory / "uv.toml"
        command = [
            find_uv_bin(), "pip", "compile", "--quiet",
            *(() if options == _WITH_DEPENDENTS else ("--format=pylock.toml",)),
            "--config-file", str(settings), "--python", python,
            "--python-version", index.python_version, "--python-platform",
            f"{_MACHINES[index.platform]}-manylinux_2_{_GLIBC}",
            # pip takes the newest version of all indexes; uv's default stops at the first one.
            # `refuse_conflicts` checks that they have the same projects
            "--index-strategy=unsafe-best-match", "--constraints", str(paths["constraints"]),
            *options,
            *index.options,
            *(("--excludes", str(paths["excludes"])) if without else ()),
            *(("--no-index",) if index.pip.no_index else ()),
            "--output-file", str(output), str(paths["requirements"]),
        ]  # fmt: skip
        variables = _uv_environment(index, _empty_wheels(installed, directory / "installed"))
        known = {**index.metadata}
        while True:
            settings.write_text("".join(metadata.table for metadata in known.values()))
            result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            unknown = _NEEDS_BACKEND.search(result.stderr)
            if result.returncode == 0 or not unknown or not index.run_backend or unknown[1] in known:
                break
            known[unknown[1]] = _metadata(unknown[1], index, is_alone="--no-deps" in options)
        if result.returncode != 0:
            raise _uv_error(result, requirements, constraints, index)
        index.results[key] = _uv_rows(read_text(output), options, index)
        return index.results[key]


def _uv_error(
    result: subprocess.CompletedProcess[str],
    requirements: Sequence[str],
    constraints: Sequence[str],
    index: Index,
) -> ConflictError | BuildError:
    tail = tuple(result.stderr.splitlines()[-interpreter.MAX_LINES :])
    names = ", ".join(f"`{requirement}`" for requirement in requirements)
    if result.returncode == _NO_SOLUTION:
        missing = _NOT_FOUND.findall(result.stderr)
        _require_access(missing, index)
        hint = _missing_hint(missing, requirements, constraints) if missing else ""
        return ConflictError(f"no versions satisfy {names}", tail=tail, hint=hint)
    return BuildError(
        f"uv failed to find versions of {names}",
        tail=tail,
        hint=_INDEX_HINT if "Failed to fetch" in result.stderr else "",
    )


def _missing_hint(missing: Iterable[str], requirements: Iterable[str], constraints: Iterable[str]) -> str:
    """Return a hint about packages that no index has. Only the user's own requirements can be misspelt."""
    own = {canonicalize_name(name) for name in _names(requirements)}
    misspelt = [name for name in dict.fromkeys(missing) if name in own]
    if not misspelt:
        return _INDEX_HINT
    locked = _names(constraints)
    near = [name for name in (nearest(word, locked) for word in misspelt) if name]
    meant = f" (did you mean {format_names(near)}?)" if near else ""
    return f"check the spelling of {format_names(misspelt)}{meant}; {_INDEX_HINT}"


def _names(requirements: Iterable[str]) -> list[str]:
    return [match[0] for match in map(_NAME.match, requirements) if match]


def _uv_rows(text: str, options: Sequence[str], index: Index) -> list[Mapping[str, Any]]:
    """Return the packages of uv's output, or each with its dependents if the options ask for them."""
    if options == _WITH_DEPENDENTS:
        matches = map(_DEPENDENTS.match, text.splitlines())
        return [{"name": match[1], "dependents": match[2].split(", ")} for match in matches if match]
    packages: list[Mapping[str, Any]] = tomllib.loads(text).get("packages", [])
    environment = marker_environment(index.python_version, index.platform)
    return [
        package
        for package in packages
        if "marker" not in package or Marker(package["marker"]).evaluate(environment)
    ]


def _metadata(requirement: str, index: Index, *, is_alone: bool) -> Metadata:
    """Return the metadata of a source distribution, from the `run_backend` of the index if it is needed."""
    assert index.run_backend
    name, _, version = requirement.partition("==") if "@" not in requirement else (requirement, "", "")
    name = canonicalize_name(Requirement(name).name)
    if is_alone:
        # The requirements are not needed
        return Metadata(name, version or "0", (), "")
    packages = _run_uv([requirement], (), index, (), (), options=("--no-deps",))
    [file] = files_of(packages, index, [requirement])
    metadata = index.run_backend(requirement, file, index)
    if metadata.name != name or version not in ("", metadata.version):
        raise BuildError(
            f"the source distribution of `{requirement}` contains {metadata.name} {metadata.version}",
            hint="choose another version of the package",
        )
    index.metadata[requirement] = metadata
    return metadata


def _require_access(names: Iterable[str], index: Index) -> None:
    """Raise BuildError if an index refuses access to projects, which uv reports as not found."""
    downloads = DownloadConfig((), index.pip, index.certificates, os.environ)
    for name in dict.fromkeys(names):
        try:
            downloads.pages(name)
        except SourceError as error:
            raise BuildError(
                f"cannot search the package indexes for `{name}`: {error.reason}", hint=_INDEX_HINT
            ) from error


def _preferences(packages: Iterable[Package]) -> str:
    """Return a lock of PEP 751 with versions only, as text; empty without packages."""
    rows = [f'[[packages]]\nname = "{package.name}"\nversion = "{package.version}"\n' for package in packages]
    return "".join(['lock-version = "1.0"\ncreated-by = "bakehouse"\n', *rows]) if rows else ""


def _empty_wheels(packages: Iterable[Package], directory: Path) -> Path:
    """Write wheels without files or requirements, so that uv finds packages that no index has."""
    directory.mkdir()
    for package in packages:
        stem = f"{canonicalize_name(package.name).replace('-', '_')}-{package.version}"
        info = f"{stem}.dist-info"
        contents = {
            "METADATA": f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: bakehouse\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        path = directory / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in contents.items():
                archive.writestr(f"{info}/{name}", text)
    return directory


def _uv_environment(index: Index, wheels: Path) -> dict[str, str]:
    """Return uv's environment with pip's settings; URLs may hold credentials, so they are not options."""
    pip = index.pip
    variables = {
        "UV_DEFAULT_INDEX": pip.index_url,
        "UV_INDEX": " ".join(pip.extra_index_urls),
        "UV_FIND_LINKS": ",".join([*pip.find_links, str(wheels)]),
        "UV_INSECURE_HOST": " ".join(pip.trusted_hosts),
        "UV_HTTP_TIMEOUT": pip.timeout,
        "HTTP_PROXY": pip.proxy,
        "HTTPS_PROXY": pip.proxy,
        "SSL_CERT_FILE": str(index.certificates or ""),
    }
    return interpreter.environment() | {name: value for name, value in variables.items() if value}


def _choose(package: Mapping[str, Any], tags: Mapping[Tag, int], platform: str) -> Mapping[str, Any]:
    """Return the wheel that pip would choose, else the file that a requirement names, else the sdist."""
    ranked = []
    for wheel in package.get("wheels", ()):
        ranks = [tags[tag] for tag in parse_wheel_filename(_file_name(wheel))[3] if tag in tags]
        if ranks:
            ranked.append((min(ranks), _file_name(wheel), wheel))
    if ranked:
        return dict(min(ranked, key=lambda item: item[:2])[2])
    if archive := package.get("archive"):
        return {**archive, "origin": archive.get("url") or archive["path"]}
    if "sdist" in package:
        return dict(package["sdist"])
    raise BuildError(f"`{package['name']}` {package['version']} has no file for CPython on {platform}")


def python_tags(python_version: str, platform: str = PLATFORM) -> dict[Tag, int]:
    """Return the tags that a Python version can install, best first."""
    major, minor = (int(part) for part in python_version.split(".")[:2])
    numbers = range(_GLIBC, 4, -1)
    names = [name for number in numbers for name in (f"manylinux_2_{number}", _ALIASES.get(number))]
    platforms = [f"{name}_{_MACHINES[platform]}" for name in (*names, "linux") if name]
    own = cpython_tags((major, minor), platforms=platforms)
    general = compatible_tags((major, minor), f"cp{major}{minor}", platforms)
    return {tag: rank for rank, tag in enumerate(dict.fromkeys((*own, *general)))}


def marker_environment(python_version: str, platform: str = PLATFORM) -> dict[str, str]:
    """Return the values of environment markers for CPython on 64-bit Linux."""
    return {
        "implementation_name": "cpython", "os_name": "posix", "platform_machine": _MACHINES[platform],
        "platform_python_implementation": "CPython", "platform_system": "Linux", "sys_platform": "linux",
        "python_version": ".".join(python_version.split(".")[:2]), "python_full_version": python_version,
    }  # fmt: skip


def _file_name(file: Mapping[str, Any]) -> str:
    return unquote(Path(urlsplit(file.get("url") or file["path"]).path).name)


def _size(file: Mapping[str, Any], downloads: DownloadConfig) -> int:
    """Return the size that the index states, else the size of the file itself."""
    if "size" in file:
        return int(file["size"])
    url = file.get("url") or Path(file["path"]).absolute().as_uri()
    if url.startswith("file:"):
        return Path(url2pathname(urlsplit(url).path)).stat().st_size
    reason = "sends no size"
    try:
        if (size := downloads.size(url)) is not None:
            return size
    except SourceError as error:
        reason = error.reason
    raise BuildError(
        f"the size of `{_file_name(file)}` is unknown",
        reasons=(Reason(f"`{redacted(url)}` {reason}"),),
        hint=_INDEX_HINT,
    )
