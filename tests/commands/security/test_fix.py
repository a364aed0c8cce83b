"""Locks of fixed versions, and the text of the pull request about them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bakehouse.catalog import project as settings
from bakehouse.commands.security import fix as fixing
from bakehouse.commands.security.findings import (
    PackageFinding,
    SecurityReport,
    Usage,
    Vulnerability,
    require_clean,
)
from bakehouse.errors import VulnerableError
from bakehouse.lock import locking
from bakehouse.plan.model import BootstrappedBase, Image, Plan
from bakehouse.plan.workspace import open_workspace, select
from tests.commands.security.security_updates import Mirror, install
from tests.support import plans
from tests.support.trees import COMPONENTS, SHA, Tree


@pytest.fixture
def alone(project: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """The project without the catalogue of Bakehouse, also where a task opens it anew."""
    location = replace(settings.find(project.root), recipe_roots=(project.root / "base", project.root))
    monkeypatch.setattr(settings, "find", lambda start: location)
    return project


def report_of(*findings: PackageFinding) -> SecurityReport:
    return SecurityReport(("small",), (), findings, ())


def demo(newer: str = "2.0") -> PackageFinding:
    return PackageFinding(
        kind="Python",
        name="demo-package",
        version="1.0",
        newer=newer,
        source="OSV",
        packages=("demo-package",),
        vulnerabilities=(Vulnerability("CVE-2026-1234", newer),),
        usages=(Usage("small", "Python packages of the recipe", in_image=True),),
    )


def openssl() -> PackageFinding:
    usages = (Usage("small", "base debian 12", in_image=True),)
    vulnerabilities = (Vulnerability("CVE-2026-0001", "1.2"),)
    return PackageFinding("Debian", "openssl", "1.0", "1.2", "Trivy", ("openssl",), vulnerabilities, usages)


def run(report: SecurityReport) -> fixing.Fix:
    workspace = open_workspace(Path.cwd())
    return fixing.fix(workspace, [], select(workspace, []).plan.images, report, lambda _: None)


def test_the_fixed_debian_packages_are_locked(alone: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.2")
    result = run(report_of(openssl()))
    assert "Package: openssl\nVersion: 1.2\n" in Path("apt/sid.packages").read_text()
    assert fixing.message(result) == (
        "Fix 1 vulnerability of openssl\n"
        "\n"
        "| package | locked | fixed in | vulnerabilities |\n"
        "|---|---|---|---|\n"
        "| openssl | 1.0 | 1.2 | CVE-2026-0001 |\n"
        "\n"
        "To build again:\n"
        "\n"
        "- base debian 12: small\n"
        "- python 3.11: small\n"
        "- torch 2.9.0 (cpu-py311): small\n"
        "- toolkit 5.1: small\n"
        "\n"
        "To release:\n"
        "\n"
        "    bake render\n"
        "    bake build small\n"
        "    bake smoke small\n"
        "    bake push small\n"
    )
    require_clean(result.remaining)


def test_a_package_that_the_lock_keeps_is_still_open(alone: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.1")
    result = run(report_of(openssl()))
    assert [reason for _, reason in result.left] == ["the lock still has openssl 1.1"]
    with pytest.raises(VulnerableError):
        require_clean(result.remaining)


@pytest.mark.parametrize(
    ("locked", "left"),
    [
        ({"twelve": "1.2", "thirteen": "3.0"}, []),
        ({"twelve": "1.1", "thirteen": "3.1"}, ["the lock still has openssl 1.1"]),
    ],
)
def test_each_suite_has_versions_of_its_own(
    alone: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, locked: dict[str, str], left: list[str]
) -> None:
    workspace = open_workspace(Path.cwd())
    [image] = select(workspace, []).plan.images

    def images(versions: dict[str, str]) -> list[Image]:
        debs = {
            name: tuple(replace(deb, version=version) for deb in image.debs if deb.name == "openssl")
            for name, version in versions.items()
        }
        assert isinstance(image.base, BootstrappedBase)
        bare = plans.changed(image, stages=(), toolchain_debs=(), base=replace(image.base, debs=()))
        return [plans.changed(bare, name=name, apt_debs=debs[name]) for name in versions]

    monkeypatch.setattr(locking, "run", lambda *_, **__: ())
    planned = SimpleNamespace(plan=Plan(tuple(images(locked))))
    monkeypatch.setattr(fixing, "select", lambda *_: planned)
    usages = (Usage("twelve", "packages", in_image=True),)
    finding = replace(demo(), kind="Debian", packages=("openssl",), version="1.0", newer="1.2", usages=usages)
    before = images({"twelve": "1.0", "thirteen": "3.0"})

    result = fixing.fix(workspace, [], before, report_of(finding), lambda _: None)

    assert [reason for _, reason in result.left] == left


@pytest.mark.parametrize(("version", "left"), [("1.2", []), ("1.0", ["the lock still has openssl 1.0"])])
def test_a_package_with_a_version_of_its_own_is_fixed_if_it_changes(
    alone: Tree, mirror: Mirror, version: str, left: list[str]
) -> None:
    mirror.update("openssl", version)
    of_source = replace(demo(), kind="Debian", packages=("openssl",), version="7.0", newer="7.1")
    assert [reason for _, reason in run(report_of(of_source)).left] == left


def test_a_package_without_a_fix_is_still_open(alone: Tree, mirror: Mirror) -> None:
    install(alone)
    result = run(report_of(demo(newer="")))
    assert fixing.message(result) == (
        "No open finding was fixed\n"
        "\n"
        "Still open:\n"
        "\n"
        "- demo-package 1.0, CVE-2026-1234: no fixed version is known\n"
    )


def test_a_package_that_no_lock_contains_is_still_open(alone: Tree, mirror: Mirror) -> None:
    result = run(report_of(demo()))
    assert [reason for _, reason in result.left] == ["no lock of the project contains it"]


def test_packages_of_bakehouse_components_are_not_locked(
    alone: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(alone)
    monkeypatch.setattr(fixing, "is_own", lambda *_: False)
    result = run(report_of(demo()))
    assert [reason for _, reason in result.left] == ["Bakehouse's catalogue locks it in `small`"]


def test_a_package_that_the_recipe_replaces_in_a_component_belongs_to_the_image(
    alone: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"demo-package=={{}} --hash=sha256:{SHA}  # demo_package-{{}}-py3-none-any.whl 10"
    alone.component("toolkit", COMPONENTS["toolkit"].replace("requires:", "lock: lock.txt\n    requires:"))
    alone.write("components/toolkit/lock.txt", f"{line.format('0.5', '0.5')}\n")
    install(alone, f"{line.format('1.0', '1.0')} replaces 0.5\n")
    [image] = alone.plan().images
    assert [stage.name for stage in image.stages if stage.wheels] == ["toolkit"]
    monkeypatch.setattr(fixing, "is_own", lambda *_: False)
    result = run(report_of(demo()))
    assert [reason for _, reason in result.left] == ["Bakehouse's catalogue locks it in `small`"]


def test_names_of_scanners_are_escaped_in_the_text(alone: Tree, mirror: Mirror) -> None:
    hostile = replace(demo(), name="a|b](x)<img>", kind="other")
    assert "- a\\|b\\](x)\\<img\\> 1.0, CVE-2026-1234: " in fixing.message(run(report_of(hostile)))


def images(tree: Tree) -> tuple[Image, Image]:
    """Return the image before and after a change of its Python packages."""
    install(tree)
    before = tree.planned_image()
    install(tree, f"six==1.0 --hash=sha256:{'7' * 64}  # six-1.0-py3-none-any.whl 5000000\n")
    return before, tree.planned_image()


def test_images_with_the_same_key_are_not_built_again(project: Tree) -> None:
    image = project.planned_image()
    assert fixing.changed_images([image], [image]) == ()
