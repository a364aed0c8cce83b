"""Locks of components, with versions that other components have locked."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from bakehouse.catalog import cache
from bakehouse.catalog.cache import read_catalog
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.requirements_lock import digest_line
from bakehouse.engine import daemon_info
from bakehouse.errors import BakehouseError
from bakehouse.lock import apt_suite, locking
from bakehouse.lock.locking import unlocked_workspace
from bakehouse.plan.workspace import Workspace
from tests.support.locked_debian import index
from tests.support.requirements_locks import locked_heading
from tests.support.trees import COMPONENTS, IMAGE, Tree
from tests.support.wheels import use_only, wheel

TUNING = """\
summary: Libraries for fine-tuning
releases:
  - version: "1.0"
    requires: {python: "3.11", torch: "*"}
    requirements: [tuning]
    lock: tuning.txt
"""
WHEEL = """\
        artifacts:
          wheel: {url: "https://x.example/torch-2.9.0%2Bcpu-cp311-cp311-linux_x86_64.whl", sha256: unknown}
"""


@pytest.fixture
def project(tree: Tree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_images_only: None) -> Tree:
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.component("debian", COMPONENTS["debian"].replace("bookworm", "sid"))
    tree.write("apt/sid.packages", index())
    wheels = tmp_path / "wheels"
    wheel(wheels, "tuning", "1.0", requires=("torch>=2", "shared"))
    wheel(wheels, "torch", "2.10.0", requires=("nvidia_cublas",))
    wheel(wheels, "nvidia_cublas", "13.0")
    for version in ("1.0", "2.0", "3.0"):
        wheel(wheels, "shared", version)
    use_only(wheels, monkeypatch)
    # The files of these components do not exist
    monkeypatch.setattr(locking, "pin", lambda *_, **__: ())
    return tree


def locked(tree: Tree, *, upgrade: bool = False, only: Collection[str] | None = None) -> list[str]:
    locking.run(tree.root, ["tuning"], lambda _: None, scope=locking.LockScope(upgrade, only))
    lines = (tree.root / "components/tuning/tuning.txt").read_text().splitlines()[1:]
    return [line.split(" ")[0] for line in lines]


def test_wheels_of_required_components_are_left_out_with_what_only_they_need(project: Tree) -> None:
    project.component("tuning", TUNING)
    assert locked(project) == ["nvidia-cublas==13.0", "shared==3.0", "torch==2.10.0", "tuning==1.0"]

    torch = COMPONENTS["torch"].replace('        provides: {cuda: "12.8"}\n', WHEEL, 1)
    project.component("torch", torch)
    assert locked(project, upgrade=True) == ["shared==3.0", "tuning==1.0"]


def test_wheels_of_build_tools_are_not_left_out(project: Tree) -> None:
    project.component("tuning", TUNING)
    tool = WHEEL.replace("wheel:", "tools:").replace("torch-2.9.0%2Bcpu-cp311-cp311", "shared-2.0-py3-none")
    torch = COMPONENTS["torch"].replace('        provides: {cuda: "12.8"}\n', tool, 1)
    project.component("torch", torch)
    assert "shared==3.0" in locked(project)


def test_the_outdated_locks_of_an_image_are_made_anew(project: Tree) -> None:
    project.component("tuning", TUNING.replace(', torch: "*"', ""))
    project.write("components/tuning/tuning.txt", "# Python 3.11: shared\n")
    project.component("other", TUNING.replace("tuning.txt", "other.txt"))
    project.write("images/tuned.yaml", IMAGE.replace("toolkit", "tuning"))
    assert locking.run(project.root, ["tuned"], lambda _: None) == ("tuning.txt: 4 packages",)
    assert locking.run(project.root, ["tuned"], lambda _: None) == ("everything is locked",)


def test_images_are_resolved_again_only_after_a_change(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []

    def read(roots: Sequence[Path]) -> Catalog:
        loaded.append(roots)
        return read_catalog(roots)

    monkeypatch.setattr(cache, "read_catalog", read)
    project.component("tuning", TUNING.replace(', torch: "*"', ""))
    project.write("components/tuning/tuning.txt", "# Python 3.11: shared\n")
    project.write("images/tuned.yaml", IMAGE.replace("toolkit", "tuning"))

    assert locking.run(project.root, ["tuned"], lambda _: None) == ("tuning.txt: 4 packages",)
    assert len(loaded) == 2
    assert locking.run(project.root, ["tuned"], lambda _: None) == ("everything is locked",)
    assert len(loaded) == 3


def test_a_locked_project_is_not_resolved_again_until_a_file_changes(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[object] = []

    def read(start: Path, failures: list[BakehouseError] | None = None) -> Workspace:
        resolved.append(start)
        return unlocked_workspace(start, failures)

    engine = object.__new__(daemon_info.Daemon)
    monkeypatch.setattr(daemon_info, "probe", lambda: engine)
    monkeypatch.setattr(cache, "_SETTLED", -(10**12))
    monkeypatch.setattr(locking, "unlocked_workspace", read)
    project.component("tuning", TUNING.replace(', torch: "*"', ""))
    project.write("components/tuning/tuning.txt", "# Python 3.11: shared\n")
    project.write("images/tuned.yaml", IMAGE.replace("toolkit", "tuning"))

    def lock() -> tuple[tuple[str, ...], int]:
        lines = locking.run(project.root, ["tuned"], lambda _: None)
        return lines, len(resolved)

    assert lock() == (("tuning.txt: 4 packages",), 1)
    assert lock() == (("everything is locked",), 2)
    assert lock() == (("everything is locked",), 2)
    project.component("tuning", TUNING.replace(', torch: "*"', "").replace("[tuning]", "[tuning, shared<3]"))
    assert lock() == (("tuning.txt: 4 packages", "tuning.txt: shared 3.0 -> 2.0"), 3)
    monkeypatch.setattr(daemon_info, "probe", lambda: None)
    assert lock()[1] == 4
    assert lock()[1] == 5


def test_each_platform_is_locked_with_its_own_files(project: Tree, tmp_path: Path) -> None:
    for machine in ("x86_64", "aarch64"):
        wheel(tmp_path / "wheels", "native", "1.0", tag=f"py3-none-manylinux_2_17_{machine}")
    platforms = "    platforms: [linux/amd64, linux/arm64]\n    requirements: [native]\n"
    project.component("tuning", TUNING.replace("    requirements: [tuning]\n", platforms))

    locked(project)

    headings, files = zip(
        *(
            (project.root / f"components/tuning/{name}").read_text().splitlines()
            for name in ("tuning.txt", "tuning-arm64.txt")
        ),
        strict=True,
    )
    assert headings == ("# Python 3.11: native", "# Python 3.11 on linux/arm64: native")
    assert ["x86_64" in files[0], "aarch64" in files[1]] == [True, True]


def test_the_most_frequent_versions_of_other_locks_are_kept_unless_upgraded(project: Tree) -> None:
    for name, version in {"first": "1.0", "second": "2.0", "third": "1.0"}.items():
        release = f"{{version: '1', requires: {{python: '3.11'}}, lock: {name}.txt}}"
        project.component(name, f"summary: Another\nreleases: [{release}]\n")
        file = f"shared-{version}-py3-none-any.whl"
        project.write(
            f"components/{name}/{name}.txt", f"shared=={version} --hash=sha256:{'ab' * 32}  # {file} 10\n"
        )
    text = TUNING.replace(', torch: "*"', "")
    project.component("tuning", text)
    # Not locked yet either
    project.component("unlocked", text)
    assert "shared==1.0" in locked(project)
    assert "shared==3.0" in locked(project, upgrade=True)


def test_an_upgraded_lock_of_a_component_names_what_moved(project: Tree) -> None:
    project.component("tuning", TUNING.replace(', torch: "*"', ""))
    path = project.root / "components/tuning/tuning.txt"
    locked(project)
    path.write_text(
        path.read_text().replace("shared==3.0", "shared==2.0").replace("shared-3.0", "shared-2.0")
    )
    scope = locking.LockScope(upgrade=True)
    lines = locking.run(project.root, ["tuning"], lambda _: None, scope=scope)
    assert [line for line in lines if "->" in line] == ["tuning.txt: shared 2.0 -> 3.0"]


def test_of_two_equally_frequent_versions_the_newer_one_is_kept(project: Tree) -> None:
    # The order of the components is the order of their names
    for name, version in {"first": "1.0", "second": "2.0"}.items():
        release = f"{{version: '1', requires: {{python: '3.11'}}, lock: {name}.txt}}"
        project.component(name, f"summary: Another\nreleases: [{release}]\n")
        file = f"shared-{version}-py3-none-any.whl"
        project.write(
            f"components/{name}/{name}.txt", f"shared=={version} --hash=sha256:{'ab' * 32}  # {file} 10\n"
        )
    project.component("tuning", TUNING.replace(', torch: "*"', ""))

    assert "shared==2.0" in locked(project)


def test_a_new_lock_that_contradicts_another_component_is_reported(project: Tree) -> None:
    file = "shared-1.0-py3-none-any.whl"
    project.component(
        "other", "summary: Another\nreleases: [{version: '1', requires: {python: '3.11'}, lock: other.txt}]\n"
    )
    project.write("components/other/other.txt", f"shared==1.0 --hash=sha256:{'ab' * 32}  # {file} 10\n")
    project.component("tuning", TUNING.replace(', torch: "*"', ""))
    base = 'base: {debian: "12"}\n'
    project.write(
        "images/both.yaml", f'summary: Both\n{base}components: {{python: "3.11", tuning: "*", other: "*"}}\n'
    )
    project.write("images/tuned.yaml", f'summary: One\n{base}components: {{python: "3.11", tuning: "*"}}\n')
    assert "shared==1.0" in locked(project)
    newer = TUNING.replace(', torch: "*"', "").replace("[tuning]", '[tuning, "shared>=2"]')
    project.component("tuning", newer)
    failures: list[BakehouseError] = []

    changes = locking.run(project.root, ["tuning"], lambda _: None, failures=failures)

    assert "tuning.txt: 4 packages" in changes
    [failure] = failures
    assert failure.diagnostics[0].message == "no versions satisfy image `both` on linux/amd64"


LOCKED = f"""\
# Python 3.11: tuning
other==1.0 --hash=sha256:{"ab" * 32}  # other-1.0-py3-none-any.whl 10
shared==1.0 --hash=sha256:{"ab" * 32}  # shared-1.0-py3-none-any.whl 10
tuning==1.0 --hash=sha256:{"ab" * 32}  # tuning-1.0-py3-none-any.whl 10
"""


@pytest.fixture
def wheels(project: Tree, tmp_path: Path) -> Tree:
    """A project whose packages have newer versions than its locks."""
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", "other", version)
    wheel(tmp_path / "wheels", "tuning", "1.0", requires=("other", "shared"))
    return project


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (("shared",), ["other==1.0", "shared==3.0", "tuning==1.0"]),
        (("absent",), ["other==1.0", "shared==1.0", "tuning==1.0"]),
        (None, ["other==2.0", "shared==3.0", "tuning==1.0"]),
    ],
)
def test_an_upgrade_of_some_packages_keeps_the_others(
    wheels: Tree, only: Collection[str] | None, expected: list[str]
) -> None:
    wheels.component("tuning", TUNING.replace(', torch: "*"', ""))
    wheels.write("components/tuning/tuning.txt", LOCKED)

    assert locked(wheels, upgrade=True, only=only) == expected


@pytest.mark.parametrize(
    ("only", "expected", "upgraded"),
    [
        (("shared",), ["other==1.0", "shared==3.0", "tuning==1.0"], ()),
        (None, ["other==2.0", "shared==3.0", "tuning==1.0"], None),
    ],
)
def test_an_upgrade_of_packages_of_an_image_keeps_its_debian_packages(
    wheels: Tree,
    monkeypatch: pytest.MonkeyPatch,
    only: Collection[str] | None,
    expected: list[str],
    upgraded: Collection[str] | None,
) -> None:
    lists: list[Collection[str] | None] = []

    def lock_apt(*_: object, suites: object, upgrade: Collection[str] | None) -> tuple[str, ...]:
        lists.append(upgrade)
        return ()

    monkeypatch.setattr(apt_suite, "lock", lock_apt)
    wheels.write("images/requirements.txt", "tuning\n")
    wheels.image('summary: S\nbase: debian\ncomponents: {python: "3.11"}\nrequirements: requirements.txt\n')
    packages = LOCKED.splitlines()[1:]
    lines = [locked_heading(b"tuning\n", "small"), digest_line(packages), *packages]
    wheels.write("images/requirements.txt.lock", "\n".join([*lines, ""]))
    locking.run(wheels.root, ["small"], lambda _: None, scope=locking.LockScope(True, only))

    lines = (wheels.root / "images/requirements.txt.lock").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines if not line.startswith("#")] == expected
    assert lists == [upgraded]
