"""Checks of the whole image: its files, secrets, directories of the base and Python packages.

Secrets, leftovers and library paths are those that AWS checks in its images: test/sanity/scripts of
https://github.com/aws/deep-learning-containers.

The layer of each component contains a list of its files in /usr/share/bakehouse, with lines `size /path`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import stat
import sys
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
CREDENTIAL_FILES = (
    *(".aws/credentials", ".aws/config", ".git-credentials", ".config/git/credentials", ".netrc", ".pypirc"),
    *(".docker/config.json", ".npmrc", ".boto", ".cache/huggingface/token", ".huggingface/token", ".env"),
)
"""Below the home directory."""
CREDENTIAL_VARIABLE = re.compile(r"AWS_ACCESS_KEY_ID|.*_(API_KEY|SECRET|SECRET_ACCESS_KEY|TOKEN|PASSWORD)")
SECRETS = {
    "an AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{9}(?!EXAMPLE)[0-9A-Z]{7}\b",
    "a GitHub token": rb"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{22}",
    "a Hugging Face token": rb"\bhf_[A-Za-z]{34}\b",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}
"""Regular expressions of secrets. AWS's documentation has keys that end with `EXAMPLE`."""
SECRET_DIRECTORIES = ("/etc", "/opt", "/root", "/home", "/srv")
IGNORED_DIRECTORIES = {"lib", "lib64", "site-packages", "dist-packages", "ssl", ".ssh", "ssh"}
"""Directories of packages, whose tests contain such texts, and of keys, which other checks examine."""
LARGEST_TEXT = 1_000_000
LINKED_BY_JOBS = ("libcudadevrt.a",)
"""CUDA's device runtime: a job links it into kernels that it compiles."""
LINKS = ("/bin", "/lib", "/lib64", "/sbin", "/var/run", "/var/lock")


def listed() -> dict[str, list[tuple[str, int]]]:
    """Return the components that list each path, with the listed sizes."""
    owners: dict[str, list[tuple[str, int]]] = {}
    for file in sorted(LISTS.glob("*")):
        for line in file.read_text().splitlines():
            size, path = line.split(" ", 1)
            owners.setdefault(path, []).append((file.name, int(size)))
    if not owners:
        # No component of this image lists its files: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    return owners


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


def texts(directories: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Return the path and content of each text file below the directories."""
    for directory in directories:
        for parent, children, names in os.walk(directory):
            children[:] = [name for name in children if name not in IGNORED_DIRECTORIES]
            for name in names:
                path = Path(parent, name)
                try:
                    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_TEXT:
                        continue
                    content = path.read_bytes()
                except OSError:
                    continue
                if b"\0" not in content:
                    yield str(path), content


def check_no_secrets() -> None:
    """Neither files nor the environment contain credentials. A value that is a path is not one."""
    home = Path.home()
    secrets = [f"{home / name} has credentials" for name in CREDENTIAL_FILES if (home / name).is_file()]
    secrets += [
        f"the variable {name} has a secret"
        for name, value in sorted(os.environ.items())
        if CREDENTIAL_VARIABLE.fullmatch(name) and value and not value.startswith("/")
    ]
    patterns = {what: re.compile(pattern) for what, pattern in SECRETS.items()}
    secrets += [
        f"{path} contains {what}"
        for path, content in texts(SECRET_DIRECTORIES)
        for what, pattern in patterns.items()
        if pattern.search(content)
    ]
    more = f" (and {len(secrets) - 1} more)" if len(secrets) > 1 else ""
    assert not secrets, f"{secrets[0]}{more}"


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


def packaging(module: str) -> types.ModuleType:
    """Return a module of the library `packaging`."""
    # This file is loaded by its path, so that its directory is not searched.
    directory = str(Path(__file__).parent)
    if directory not in sys.path:
        sys.path.append(directory)
    for library in PACKAGING:
        try:
            return importlib.import_module(f"{library}.{module}")
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
    unmet = []
    for name, distribution in sorted(installed.items()):
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
