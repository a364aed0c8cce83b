"""Differences between locks and their sources, by kind."""

import hashlib
from collections.abc import Iterator

import pytest

from bakehouse.cli import main
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import UnavailableDaemon, UnavailableReason
from bakehouse.errors import BuildError, ConflictError, Diagnostic, EngineError, Problems, StaleError
from bakehouse.lock import apt_base_image, apt_suite, drift, locking
from bakehouse.lock.drift import Drift, DriftKind
from tests.support.errors import error_text, raised, refusal
from tests.support.locked_debian import index
from tests.support.requirements_locks import locked_heading
from tests.support.trees import COMPONENTS, IMAGE, Tree


@pytest.fixture
def project(tree: Tree, own_images_only: None) -> Tree:
    """The small catalogue as a user's project, on a Debian that Bakehouse itself has no lock of."""
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.component("debian", COMPONENTS["debian"].replace("bookworm", "sid"))
    tree.write("apt/sid.packages", index())
    return tree


def open_points(tree: Tree) -> list[Drift]:
    workspace = locking.unlocked_workspace(tree.root)
    return list(drift.open_points(workspace, [workspace.recipes["small"]]))


def test_nothing_is_open_where_all_is_locked(project: Tree) -> None:
    assert open_points(project) == []


def test_a_package_that_no_lock_has(project: Tree) -> None:
    project.image(IMAGE + "packages: [vim, gcc-12=11.0]\n")
    assert open_points(project) == [Drift(DriftKind.NOT_LOCKED, "sid", "gcc-12=11.0 (12.2 is)")]


def test_a_suite_without_a_lock(project: Tree) -> None:
    project.component("debian", COMPONENTS["debian"].replace("bookworm", "forky"))
    assert open_points(project) == [Drift(DriftKind.NOT_LOCKED, "forky", "none of its packages")]


def test_requirements_without_a_lock_or_with_an_older_one(project: Tree) -> None:
    requirements = project.write("images/requirements.txt", "six\n")
    project.image(IMAGE + "requirements: requirements.txt\n")
    assert open_points(project) == [Drift(DriftKind.NOT_LOCKED, "small", "requirements.txt")]
    lock = project.write("images/requirements.txt.lock", locked_heading(b"seven\n", "small") + "\n")
    assert open_points(project) == [Drift(DriftKind.OLDER, "small", "requirements.txt.lock")]
    lock.write_text(locked_heading(requirements, "small") + "\n")
    assert open_points(project) == []


def test_a_checksum_that_is_unknown(project: Tree) -> None:
    text = (
        COMPONENTS["toolkit"]
        + '    artifacts:\n      file: {url: "https://x.example/f.tgz", sha256: unknown}\n'
    )
    project.component("toolkit", text)
    assert open_points(project) == [Drift(DriftKind.UNKNOWN, "toolkit 5.1", "f.tgz")]


def test_the_unknown_checksum_of_a_component_that_no_image_has(project: Tree) -> None:
    project.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\nmirrors = ["files"]\n')
    project.write("files/f.tgz", "content")
    artifact = '{url: "https://x.example/f.tgz", sha256: unknown}'
    text = f'summary: x\nreleases: [{{version: "1", artifacts: {{file: {artifact}}}}}]\n'
    project.component("spare", text)
    expected = [Drift(DriftKind.UNKNOWN, "spare 1", "f.tgz")]
    assert [*locking.check_locks(project.root, ["spare"], lambda _: None)] == expected

    [line] = locking.run(project.root, ["spare"], lambda _: None)

    sha256 = hashlib.sha256(b"content").hexdigest()
    assert line == f"f.tgz: sha256:{sha256}, 7 bytes, from {project.root}/files/f.tgz"
    assert f"sha256: {sha256}, bytes: 7" in (project.root / "components/spare/component.yaml").read_text()
    assert locking.check_locks(project.root, ["spare"], lambda _: None) == ()


PINNED = f"x.example/y:1@sha256:{'ab' * 32}"


def pulled(project: Tree, digest: str = "") -> Tree:
    """The project's image on a base that is pulled, with a package of its own."""
    text = COMPONENTS["debian"].partition("    base:")[0].replace('"12"', '"1"')
    base = f"    base: {{image: x.example/y:1{digest and f', digest: {digest}'}}}\n"
    project.component("theirs", text + base + '    provides: {glibc: "2.36"}\n')
    project.image(IMAGE.replace('debian: "12"', 'theirs: "1"') + "packages: [vim]\n")
    return project


def test_a_pulled_base_whose_steps_are_locked(project: Tree) -> None:
    pulled(project, PINNED.partition("@")[2])
    lock = project.write("apt/bases/x.example-y-1-abababab.packages", f"Base: {PINNED}\n\nStep: vim\nAdds:\n")
    assert open_points(project) == []
    lock.write_text(f"Base: {PINNED}\n\nStep: emacs\nAdds:\n")
    assert open_points(project) == [Drift(DriftKind.NOT_LOCKED, "x.example/y:1", "vim")]
    lock.write_text(f"Base: {PINNED.replace('ab', 'cd')}\n\nStep: vim\nAdds:\n")
    assert open_points(project) == [
        Drift(DriftKind.OLDER, "x.example/y:1", f"x.example-y-1-abababab.packages, of sha256:{'cd' * 32}")
    ]


def test_a_vendor_base_without_a_digest_is_not_locked(project: Tree) -> None:
    workspace = locking.unlocked_workspace(pulled(project).root)
    named = [workspace.recipes["small"]]
    assert [*apt_base_image.lock(workspace, named, print, print, named=named)] == [
        "packages on x.example/y:1 cannot be locked: its digest is unknown"
    ]


def with_dnf(project: Tree) -> Tree:
    """The project's image on a base of Amazon Linux, with a package of its own."""
    pulled(project, PINNED.partition("@")[2])
    path = project.root / "components/theirs/component.yaml"
    text = path.read_text().replace('{glibc: "2.36"}', '{amazon-linux: "2023", glibc: "2.34"}')
    path.write_text(text.replace("build_packages: [gcc]", ""))
    return project


def test_packages_of_dnf_are_not_locked(project: Tree) -> None:
    workspace = locking.unlocked_workspace(with_dnf(project).root)
    named = [workspace.recipes["small"]]
    assert [*apt_base_image.lock(workspace, named, print, print, named=named)] == [
        "packages on x.example/y:1 are not locked: Bakehouse locks only apt packages"
    ]


def test_packages_of_dnf_are_an_open_point(project: Tree) -> None:
    assert open_points(with_dnf(project)) == [Drift(DriftKind.MIRRORS, "x.example/y:1", "packages of dnf")]


def test_without_an_engine_a_vendor_base_gets_no_first_lock(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = UnavailableDaemon(UnavailableReason.NOT_RUNNING, "unix:///none", "")
    monkeypatch.setattr(daemon_info, "probe", lambda: silent)
    workspace = locking.unlocked_workspace(pulled(project, PINNED.partition("@")[2]).root)
    named = [workspace.recipes["small"]]
    assert [*apt_base_image.lock(workspace, named, print, print, named=named)] == [
        "packages on x.example/y:1 are not locked; run `bake lock` where a container engine runs"
    ]


def test_another_failure_hides_neither_a_silent_vendor_nor_what_was_locked(
    project: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> Iterator[str]:
        raise EngineError("no engine")

    def pin(*arguments: object, upgrade: bool) -> Iterator[str]:
        problems = arguments[3]
        assert isinstance(problems, Problems)
        problems.add(Diagnostic("no answer"))
        yield "pinned"

    monkeypatch.setattr(locking, "pin", pin)
    monkeypatch.setattr(apt_suite, "lock", fail)
    error = raised(BuildError, locking.run, project.root, ["small"], print)
    assert [each.message for each in error.diagnostics] == ["no answer", "no engine"]
    monkeypatch.chdir(project.root)
    assert main.run(("lock", "small")) == BuildError.exit_code
    assert capsys.readouterr().out == "pinned\n"


def test_only_named_bases_are_pulled_for_locking(project: Tree) -> None:
    workspace = locking.unlocked_workspace(pulled(project, PINNED.partition("@")[2]).root)
    assert [*apt_base_image.lock(workspace, [workspace.recipes["small"]], print, print)] == []


def test_a_base_that_is_pulled(project: Tree) -> None:
    assert open_points(pulled(project)) == [
        Drift(DriftKind.NO_DIGEST, "theirs 1", "x.example/y:1"),
        Drift(DriftKind.MIRRORS, "x.example/y:1", "packages of apt"),
    ]
    assert refusal(StaleError, locking.require_locked, open_points(project)) == (
        "error: 1 item is not locked\n\nhint: run `bake lock` and commit the result\n"
    )


def test_a_components_lock_of_other_requirements(project: Tree) -> None:
    text = COMPONENTS["toolkit"].replace('python: "*"', 'python: "3.11"')
    project.component("toolkit", text + "    requirements: [six]\n    lock: toolkit.txt\n")
    lock = project.write("components/toolkit/toolkit.txt", "# Python 3.11: seven\n")
    assert open_points(project) == [Drift(DriftKind.OLDER, "toolkit 5.1", "toolkit.txt")]
    lock.write_text("# Python 3.11: six\n")
    assert open_points(project) == []


def test_an_unsatisfiable_recipe_is_reported_if_named_and_skipped_otherwise(project: Tree) -> None:
    project.write("images/bad.yaml", IMAGE.replace('debian: "12"', 'debian: "13"'))
    messages: list[str] = []
    for task in (locking.run, locking.check_locks):
        error = raised(ConflictError, task, project.root, ["bad"], messages.append)
        assert "no versions satisfy image `bad` on linux/amd64" in error_text(error)
    assert locking.run(project.root, ["small"], messages.append) == ("everything is locked",)


def test_kinds_are_reported_one_after_the_other() -> None:
    drifts = [
        Drift(DriftKind.NEWER_PYTHON, "torch 2.9", "six 1.16 -> 1.17"),
        Drift(DriftKind.NOT_LOCKED, "bookworm", "vim"),
        Drift(DriftKind.NEWER_PYTHON, "a", "b 1 -> 2"),
    ]
    assert drift.table(drifts) == (
        "not locked:\n  bookworm  vim\n"
        "newer in the package index:\n  torch 2.9  six 1.16 -> 1.17\n  a          b 1 -> 2\n"
    )
    assert drift.table([]) == "everything is locked, and nothing is newer\n"


def test_what_is_left_open_fails_and_what_is_newer_does_not() -> None:
    locking.require_locked([Drift(DriftKind.NEWER_SYSTEM, "bookworm", "vim 1 -> 2")])
    with pytest.raises(StaleError) as caught:
        locking.require_locked([Drift(DriftKind.UNKNOWN, "a", "b"), Drift(DriftKind.OLDER, "a", "b")])
    assert error_text(caught.value) == (
        "error: 2 items are not locked\n\nhint: run `bake lock` and commit the result\n"
    )
