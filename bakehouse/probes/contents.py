"""Checks of the whole image: its files, secrets, directories of the base and Python packages.

Secrets, leftovers and library paths are those that AWS checks in its images: test/sanity/scripts of
https://github.com/aws/deep-learning-containers.

The layer of each component contains a list of its files in /usr/share/bakehouse, with lines `size /path`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import site
import stat
import sys
import sysconfig
import types
import unittest
from collections.abc import Iterable, Iterator
from pathlib import Path

LISTS = Path("/usr/share/bakehouse")
LEFTOVERS = (
    *("/var/lib/apt/lists/*_Packages*", "/var/cache/apt/*.bin", "/var/cache/apt/archives/*.deb"),
    *("/root/.cache/*", "/tmp/*.txt", "/tmp/wheels", "/tmp/sdists", "/out"),
    *("/run/secrets/*", "/etc/pip.conf"),
    *("/tmp/*.py", "/var/tmp/*", "/root/*.py", "/*.py", "/root/.bash_history", "/root/.viminfo"),
    *(f"/usr/local/bin/{name}" for name in ("download", "download-debs", "download-sdists")),
    *(f"/usr/local/bin/{name}" for name in ("finish-layer", "finish-step")),
    *("/etc/apt/apt.conf.d/99bakehouse",),
)
MODES = {
    "/tmp": 0o1777,
    "/var/tmp": 0o1777,
    "/root": 0o700,
    "/": 0o755,
    "/usr/local/bin": 0o755,
    "/opt": 0o755,
}
PACKAGING = ("packaging", "pip._vendor.packaging", "probe_packaging")
"""Names of the library `packaging`. The last is a copy of Bakehouse's, for images without the others."""
CREDENTIAL_VARIABLE = re.compile(r"AWS_ACCESS_KEY_ID|.*_(API_KEY|SECRET|SECRET_ACCESS_KEY|TOKEN|PASSWORD)")
_KERNEL = "file systems of the kernel"
_DISTRIBUTION = "packages of the distribution"
_VENDOR = "packages of a vendor's base"
NOT_SEARCHED = {
    **dict.fromkeys(("/proc", "/sys", "/dev"), _KERNEL),
    "/run": "files of the container, such as those of this check",
    **dict.fromkeys(("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot"), _DISTRIBUTION),
    **{f"/usr/{name}": _DISTRIBUTION for name in ("bin", "sbin", "lib", "lib32", "lib64", "libexec")},
    **{f"/usr/{name}": _DISTRIBUTION for name in ("include", "share", "src")},
    **dict.fromkeys(("/var/lib/dpkg", "/var/lib/rpm"), _DISTRIBUTION),
    "/etc/ssl/private/ssl-cert-snakeoil.key": "an example of the distribution",
    **dict.fromkeys(("/opt/nvidia", "/opt/amazon", "/opt/hpcx"), _VENDOR),
}
"""Files and directories that are not searched for secrets, each with the reason. Own files always are."""
TOP = "/"
"""Directory below which secrets are searched."""
OWN_FILES = "own_files.json"
"""The files of the recipe, and those whose secrets it allows, next to this file."""
LARGEST_TEXT = 20_000_000
LINKED_BY_JOBS = ("libcudadevrt.a",)
"""CUDA's device runtime: a job links it into kernels that it compiles."""
LINKS = ("/bin", "/lib", "/lib64", "/sbin", "/var/run", "/var/lock")


def owners() -> dict[str, list[tuple[str, int]]]:
    """Return the components that list each path, with the listed sizes."""
    components: dict[str, list[tuple[str, int]]] = {}
    for file in sorted(LISTS.glob("*")):
        # A component has a list in each of its layers
        component = file.name.partition("~")[0]
        for line in file.read_text().splitlines():
            size, path = line.split(" ", 1)
            listed = components.setdefault(path, [])
            if (component, int(size)) not in listed:
                listed.append((component, int(size)))
    return components


def listed() -> dict[str, list[tuple[str, int]]]:
    """Return what `owners` does, or skip the check without lists."""
    paths = owners()
    if not paths:
        # No component of this image lists its files: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    return paths


def check_each_file_has_one_owner() -> None:
    shared = {path: [name for name, _ in owners] for path, owners in listed().items() if len(owners) > 1}
    assert not shared, f"{len(shared)} files are in two components, for example {next(iter(shared.items()))}"


def check_listed_files_are_there() -> None:
    wrong = [
        path
        for path, [(_, size), *_] in listed().items()
        if not os.path.lexists(path) or os.lstat(path).st_size != size
    ]
    assert not wrong, f"{len(wrong)} files are missing or have another size, for example {wrong[0]}"


def check_licence_texts_are_there() -> None:
    empty = [path for path, [(_, size), *_] in listed().items() if path.endswith("/copyright") and not size]
    assert not empty, f"{empty[0]} contains no licence text"


def check_nothing_is_left_over() -> None:
    leftovers = [str(path) for pattern in LEFTOVERS for path in Path("/").glob(pattern.lstrip("/"))]
    assert not leftovers, ", ".join(leftovers[:5])


def check_no_static_library() -> None:
    """A compiler that the image carries on purpose has its own."""
    directories = (Path("/opt"), Path("/usr/local"))
    libraries = [
        str(path)
        for directory in directories
        for path in directory.rglob("*.a")
        if path.name not in LINKED_BY_JOBS
    ]
    assert not libraries, ", ".join(libraries[:5])


def check_base_directories_keep_their_modes() -> None:
    changed = {
        path: oct(mode)
        for path, expected in MODES.items()
        if Path(path).is_dir() and (mode := stat.S_IMODE(Path(path).stat().st_mode)) != expected
    }
    assert not changed, changed


def check_base_links_are_links() -> None:
    lost = [path for path in LINKS if Path(path).is_dir() and not Path(path).is_symlink()]
    # /lib64 and others are real directories in bases without a merged /usr.
    assert not lost or not Path("/bin").is_symlink(), lost


def package_directories() -> set[str]:
    """Return the directories of Python and its packages, whose tests contain keys."""
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    cuda = map(str, Path("/usr/local").glob("cuda*"))
    return {*(paths[name] for name in names), *cuda, *site.getsitepackages()}


def searched_files() -> Iterator[str]:
    """Yield the files that neither the distribution, nor a component, nor Python's packages contain."""
    sizes = {path: size for path, [(_, size), *_] in owners().items()}
    skipped = {*NOT_SEARCHED, *package_directories()}
    for parent, children, names in os.walk(TOP):
        above = parent.rstrip("/")
        children[:] = [name for name in children if f"{above}/{name}" not in skipped]
        for path in (f"{above}/{name}" for name in names):
            # A component's file that a later step changed is searched.
            if path not in skipped and not (path in sizes and os.lstat(path).st_size == sizes[path]):
                yield path


def secrets_in(paths: Iterable[str]) -> Iterator[str]:
    """Yield where files contain secrets, without the secrets."""
    library = probe_library("probe_secrets")
    for path in paths:
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_TEXT:
                with Path(path).open("rb") as file:
                    secret = library.secret_in_file(file, path)
                if secret:
                    yield f"{path}:{secret.line} contains {secret.kind}"
        except OSError:
            continue


def check_no_secrets() -> str:
    """Neither files nor the environment contain credentials. A value that is a path is not one."""
    record = Path(__file__).with_name(OWN_FILES)
    recorded = json.loads(record.read_text()) if record.is_file() else {}
    allowed = recorded.get("allowed", ())
    paths = [
        path for path in dict.fromkeys((*recorded.get("own", ()), *searched_files())) if path not in allowed
    ]
    secrets = [
        *secrets_in(paths),
        *(
            f"the variable {name} has a secret"
            for name, value in sorted(os.environ.items())
            if CREDENTIAL_VARIABLE.fullmatch(name) and value and not value.startswith("/")
        ),
    ]
    more = f" (and {len(secrets) - 1} more)" if len(secrets) > 1 else ""
    print(*secrets, sep="\n")
    assert not secrets, f"{secrets[0]}{more}"
    return f"searched {len(paths)} files"


def check_library_path_has_only_directories() -> None:
    """The loader searches the current directory for an empty or relative entry."""
    if not (LISTS / "python").exists():
        # The environment is that of the vendor's base: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    text = os.environ.get("LD_LIBRARY_PATH", "")
    # Directories of NVIDIA's bases, for libraries of the host
    entries = [entry for entry in text.split(":") if not entry.startswith("/usr/local/nvidia/")]
    wrong = [entry for entry in entries if not (entry.startswith("/") and Path(entry).is_dir())]
    assert not text or not wrong, (
        f"LD_LIBRARY_PATH has `{wrong[0]}`, which is not a directory with its full path"
    )


def probe_library(name: str) -> types.ModuleType:
    """Return a module that is installed, or next to this file."""
    # This file is loaded by its path, so that its directory is not searched.
    directory = str(Path(__file__).parent)
    if directory not in sys.path:
        sys.path.append(directory)
    return importlib.import_module(name)


def packaging(module: str) -> types.ModuleType:
    """Return a module of the library `packaging`."""
    for library in PACKAGING:
        try:
            return probe_library(f"{library}.{module}")
        except ImportError:
            continue
    reason = "the library `packaging` is not available"
    raise unittest.SkipTest(reason)


def unmet_requirements(
    distributions: Iterable[importlib.metadata.Distribution],
) -> list[tuple[set[str], str]]:
    """Return the requirements that are not met: the names of both packages, and a line as of `pip check`."""
    normalize = packaging("utils").canonicalize_name
    requirements, specifiers = packaging("requirements"), packaging("specifiers")
    installed: dict[str, importlib.metadata.Distribution] = {}
    for distribution in distributions:
        # Python imports the first of several. Damaged metadata has no name.
        if distribution.metadata["Name"]:
            installed.setdefault(normalize(distribution.metadata["Name"]), distribution)
    unmet, found = [], sorted(installed.items())
    for name, distribution in found:
        # A build for CPUs has the modules of the package that others require
        installed.setdefault(name[: -len("-cpu")] if name.endswith("-cpu") else name, distribution)
    for name, distribution in found:
        title = f"{name} {distribution.version}"
        for text in distribution.requires or ():
            try:
                requirement = requirements.Requirement(text)
                if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                    continue
                required, specifier = normalize(requirement.name), requirement.specifier
                if required not in installed:
                    unmet.append(({name}, f"{title} requires {required}, which is not installed"))
                elif not specifier.contains(installed[required].version, prereleases=True):
                    other = f"{required} {installed[required].version}"
                    line = f"{title} has requirement {required}{specifier}, but you have {other}"
                    unmet.append(({name, required}, line))
            except (requirements.InvalidRequirement, specifiers.InvalidSpecifier):
                unmet.append(({name}, f"{title} has an invalid requirement: {text}"))
    return unmet


def listed_packages() -> set[str]:
    """Return the normalized names of the packages that components list."""
    directories = (Path(path).parent.name for path in listed() if path.endswith(".dist-info/METADATA"))
    return {packaging("utils").canonicalize_name(name.partition("-")[0]) for name in directories}


def check_packages_fit_together() -> None:
    """The requirements of all Python packages are met."""
    unmet = unmet_requirements(importlib.metadata.distributions())
    if not (LISTS / "python").exists():
        # The packages of a vendor's base may not fit each other, which the image cannot change.
        own = listed_packages() if LISTS.exists() else set()
        unmet = [(names, line) for names, line in unmet if names & own]
    lines = [line for _, line in unmet]
    print(*lines, sep="\n")
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    assert not lines, f"{lines[0]}{more}"
