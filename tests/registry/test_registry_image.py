"""The image of the local registry, made of locked packages."""

import io
import tarfile
from pathlib import Path

import pytest

from bakehouse.catalog.apt_lock import apt_locks
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.registry import registry_image
from bakehouse.util.oci import PLATFORM, PLATFORMS
from tests.support.debian_packages import deb
from tests.support.errors import raised


@pytest.fixture
def project(tmp_path: Path) -> ProjectSettings:
    (tmp_path / "mirror").mkdir()
    return ProjectSettings(
        tmp_path, (), mirrors=(str(tmp_path / "mirror"),), cache_directory=tmp_path / "cache"
    )


def test_each_platform_has_locked_packages() -> None:
    for platform in PLATFORMS:
        names = [deb.name for deb in registry_image.locked(platform)]
        assert names == ["docker-registry", "bash", "coreutils", "libc6", "libtinfo6"]
    assert {*registry_image.locked(PLATFORM)} <= {*apt_locks([HOME / "recipes"])["bookworm"].debs}
    first, second = map(registry_image.reference_of, map(registry_image.locked, PLATFORMS))
    assert first != second


def test_a_platform_without_locked_packages_is_named() -> None:
    assert raised(PublishError, registry_image.locked, "linux/riscv64").diagnostics == (
        Diagnostic(
            "the local registry cannot run on an engine of linux/riscv64",
            reasons=(Reason("docker-registry is not locked for Debian bookworm-riscv64"),),
            hint="set `registry` in [tool.bakehouse] to a registry",
        ),
    )


def test_an_image_that_the_engine_has_is_not_made_again(
    project: ProjectSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_info, "docker", lambda *_: ProgramResult(0, "[]"))
    reference = registry_image.ensure(project, PLATFORM, print)
    assert reference == registry_image.reference_of(registry_image.locked(PLATFORM))


def test_the_layer_has_programs_and_licences_alone(tmp_path: Path) -> None:
    package = deb(tmp_path, "docker-registry", "1", {"copyright": "free", "README": "read me"})
    with tarfile.open(fileobj=io.BytesIO(registry_image.make_layer([package]))) as layer:
        files = {entry.name: (entry.uid, entry.mode) for entry in layer if entry.isfile()}
        assert [entry.name for entry in layer if entry.isdir()] == ["var/lib/registry"]
    assert files == {
        "etc/docker/registry/config.yml": (0, 0o644),
        "usr/share/doc/docker-registry/copyright": (0, 0o644),
    }
    assert registry_image.make_layer([package]) == registry_image.make_layer([package])


def test_a_package_that_cannot_be_downloaded_is_the_reason(
    project: ProjectSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_info, "docker", lambda *_: ProgramResult(1, ""))
    monkeypatch.setattr("bakehouse.fetch.sources.DownloadConfig.offers", lambda *_: ())
    lines: list[str] = []
    [diagnostic] = raised(PublishError, registry_image.ensure, project, PLATFORM, lines.append).diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "the image of the local registry cannot be made",
        "set `registry` in [tool.bakehouse] to a registry, or make a mirror of Debian reachable",
    )
    reference = registry_image.reference_of(registry_image.locked(PLATFORM))
    assert lines[0] == f"making the image {reference} of the local registry"
