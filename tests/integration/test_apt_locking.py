"""The lock of Debian with the apt of a locked base and the real mirrors."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.builder import base_image
from bakehouse.catalog.apt_lock import AptLock, apt_locks, written
from bakehouse.catalog.project import HOME
from bakehouse.engine import docker
from bakehouse.errors import BuildError, ConflictError
from bakehouse.lock import apt
from bakehouse.lock.apt_suite import apt_machine
from bakehouse.plan import workspace
from bakehouse.plan.model import BootstrappedBase
from tests.integration import projects
from tests.support import feeds

pytestmark = pytest.mark.engine

LISTS = (
    ("ca-certificates", "python3"),
    ("bash", "ca-certificates", "g++", "openssh-client", "openssh-server", "python3", "python3-dev"),
    ("ca-certificates", "cmake", "libopenmpi-dev", "python3", "python3-pip"),
)


def locked(directory: Path, resolved: apt.Resolved) -> AptLock:
    (directory / "apt").mkdir(exist_ok=True)
    (directory / "apt/bookworm.packages").write_text(written(resolved.packages.values()))
    return apt_locks([directory])["bookworm"]


def machine(state: Path, *mirrors: str) -> apt.AptMachine:
    """Return the base that resolves bookworm, and the mirrors of this machine or others."""
    opened = workspace.open_workspace(HOME)
    project = replace(opened.project, debian_mirrors=mirrors, state_directory=state)
    return apt_machine(replace(opened, project=project), "bookworm", print)


def names(resolved: apt.Resolved) -> set[str]:
    return {*resolved.packages}


@pytest.mark.parametrize("lists", [LISTS[1:2], pytest.param(LISTS, marks=pytest.mark.release)])
def test_a_lock_comes_to_the_packages_that_apt_would_install(
    tmp_path: Path, lists: Sequence[Sequence[str]]
) -> None:
    lock = locked(tmp_path, apt.resolve("bookworm", LISTS, None, machine(tmp_path)))
    for packages in lists:
        alone = apt.resolve("bookworm", [packages], lock, machine(tmp_path))
        assert {deb.name for deb in lock.base(packages)} == names(alone)
        assert [change for change in alone.changes if change.after] == []


def test_what_is_locked_stays_until_it_is_upgraded(tmp_path: Path) -> None:
    now = apt.resolve("bookworm", LISTS[:1], None, machine(tmp_path))
    version = now.packages["ca-certificates"]["Version"]
    text = written(now.packages.values()).replace(f"Version: {version}\n", "Version: 1.old\n")
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt/bookworm.packages").write_text(text)
    old = apt_locks([tmp_path])["bookworm"]
    resolution = apt.resolve("bookworm", [*LISTS[:1], ["make"]], old, machine(tmp_path / "my project"))
    assert resolution.packages["ca-certificates"]["Version"] == "1.old"
    assert "make" in resolution.packages
    upgraded = apt.resolve("bookworm", LISTS[:1], old, machine(tmp_path), upgrade=["ca-certificates"])
    assert [change.text for change in upgraded.changes] == [f"ca-certificates 1.old -> {version}"]


def archive(directory: Path) -> str:
    """Make an archive of bookworm with an index that Debian has not signed."""
    index = b"Package: evil\nVersion: 1\nArchitecture: amd64\nFilename: evil.deb\nSize: 1\n\n"
    suite = directory / "dists/bookworm"
    (suite / "main/binary-amd64").mkdir(parents=True)
    (suite / "main/binary-amd64/Packages").write_bytes(index)
    listed = f" {sha256(index).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
    release = f"Origin: Debian\nLabel: Debian\nSuite: bookworm\nCodename: bookworm\nSHA256:\n{listed}"
    (suite / "InRelease").write_bytes(release.encode())
    return directory.as_uri()


def test_an_index_that_debian_has_not_signed_is_rejected(tmp_path: Path) -> None:
    unsigned = machine(tmp_path / "state", archive(tmp_path / "mirror"))
    with pytest.raises(BuildError) as caught:
        apt.resolve("bookworm", LISTS[:1], None, unsigned)
    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "apt rejects the index of a Debian mirror of `bookworm`",
        "use a mirror that is a complete copy of Debian, signed with Debian's keys",
    )


def test_packages_of_another_architecture_and_suite(tmp_path: Path) -> None:
    arm = apt.resolve("bookworm-arm64", [("make",)], None, machine(tmp_path))
    assert {fields["Architecture"] for fields in arm.packages.values()} == {"arm64", "all"}
    assert apt.resolve("trixie", [("make",)], None, machine(tmp_path)).packages["make"]["Version"] >= "4.4"


def test_names_that_debian_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(apt.UnknownPackages) as caught:
        apt.resolve("bookworm", [("jqq",), ("vim=0",)], None, machine(tmp_path))
    assert caught.value.requests == ("jqq",)
    assert "jq" in caught.value.known


def test_packages_that_do_not_fit_together(tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as caught:
        apt.resolve("bookworm", [("mawk", "systemd-sysv", "sysvinit-core")], None, machine(tmp_path))
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == "these Debian packages do not fit together"
    assert any("sysvinit-core" in line for line in diagnostic.tail)


@pytest.fixture
def base() -> Iterator[BootstrappedBase]:
    """The base of the catalogue's images, under a name of its own."""
    image = workspace.select(workspace.open_workspace(HOME), ["mpi-cpu"]).plan.images[0]
    assert isinstance(image.base, BootstrappedBase)
    reference = f"bakehouse/test-base:{uuid4().hex[:8]}"
    yield replace(image.base, reference=reference)
    subprocess.run(["docker", "image", "rm", "-f", reference], capture_output=True, check=False)


def test_a_locked_base_is_the_same_each_time_and_names_no_mirror(
    base: BootstrappedBase, tmp_path: Path
) -> None:
    with contextlib.closing(docker.connect()) as engine:
        base_image.ensure_base(base, engine=engine, state=tmp_path, report=print, get=feeds.get)
    assert _layers(base.reference) == _layers(projects.base())
    check_image(base)


def check_image(base: BootstrappedBase) -> None:
    command = (
        "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d; dpkg-query -W -f '${Package}=${Version}\\n'"
    )
    shell = ["docker", "run", "--rm", "--network=none", base.reference, "sh", "-c", command]
    lines = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == (
        "# The packages of this image are locked by sha256. To install others, name a mirror here."
    )
    assert lines[1:] == [f"{deb.name}={deb.version}" for deb in base.debs]


def test_a_package_with_other_bytes_makes_no_base(base: BootstrappedBase, tmp_path: Path) -> None:
    first, *others = base.debs
    lying = replace(base, debs=(replace(first, sha256="0" * 64), *others))
    with contextlib.closing(docker.connect()) as engine:
        with pytest.raises(BuildError, match="1 file could not be downloaded"):
            base_image.ensure_base(lying, engine=engine, state=tmp_path, report=print, get=feeds.get)
        assert engine.image(base.reference) is None


def _layers(reference: str) -> list[str]:
    output = subprocess.run(["docker", "image", "inspect", reference], capture_output=True, check=True).stdout
    layers: list[str] = json.loads(output)[0]["RootFS"]["Layers"]
    return layers
