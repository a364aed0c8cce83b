"""Locks of components are made from what the components say, and left alone where they still are that."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from bakehouse.catalog.project import find
from bakehouse.errors import ConflictError, RecipeError, UsageError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import required_files
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock import apt_suite, drift, locking
from bakehouse.lock import python as pylock
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.resolve.resolver import resolve
from bakehouse.util.file_lock import exclusive
from tests.support.data import text_of
from tests.support.errors import error_text
from tests.support.wheels import wheel

COMPONENT = text_of(__file__, "component")
LOCKED_FILES = ("2.0-py311.txt: 3 packages", "2.0-py312.txt: 2 packages", "1.0.txt: 1 package")

Pin = Callable[..., tuple[str, ...]]


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pin:
    """Pins in a project with the component above and an index of three packages."""
    directory = tmp_path / "mine/components/top"
    directory.mkdir(parents=True)
    (directory / "component.yaml").write_text(COMPONENT)
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    wheel(tmp_path / "wheels", "top", "2.0", requires=("needed",))
    wheel(tmp_path / "wheels", "needed", "1.0")
    wheel(tmp_path / "wheels", "only_old", "1.0")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    def run(*patterns: str, upgrade: bool = False) -> tuple[str, ...]:
        return locking.run(tmp_path, patterns, lambda _: None, scope=locking.LockScope(upgrade))

    return run


def _lock(tmp_path: Path, name: str) -> Path:
    return tmp_path / "mine/components/top/locks" / name


def _names(path: Path) -> list[str]:
    return [line.split(" ")[0] for line in path.read_text().splitlines() if not line.startswith("#")]


def test_a_components_locks_are_made_one_for_each_python(pin: Pin, tmp_path: Path) -> None:
    assert pin("top") == LOCKED_FILES
    assert _names(_lock(tmp_path, "2.0-py311.txt")) == ["needed==1.0", "only-old==1.0", "top==2.0"]
    assert _names(_lock(tmp_path, "2.0-py312.txt")) == ["needed==1.0", "top==2.0"]
    heading = '# Python 3.12: top==2.0, only-old; python_version < "3.12"'
    assert _lock(tmp_path, "2.0-py312.txt").read_text().splitlines()[0] == heading


def test_what_its_own_wheels_bring_is_not_locked(pin: Pin, tmp_path: Path) -> None:
    pin("top")
    assert _names(_lock(tmp_path, "1.0.txt")) == ["top==2.0"]


def test_a_lock_of_the_same_requirements_stays_as_it_is_until_an_upgrade(pin: Pin, tmp_path: Path) -> None:
    pin("top")
    wheel(tmp_path / "wheels", "needed", "1.1")
    assert pin("top") == ("everything is locked",)
    assert "needed==1.0" in _names(_lock(tmp_path, "2.0-py312.txt"))
    pin("top", upgrade=True)
    assert "needed==1.1" in _names(_lock(tmp_path, "2.0-py312.txt"))


def test_a_lock_of_other_requirements_is_made_again(pin: Pin, tmp_path: Path) -> None:
    pin("top")
    component = tmp_path / "mine/components/top/component.yaml"
    component.write_text(component.read_text().replace('"top==2.0", ', '"top==2.0", "needed==1.0", '))
    assert pin("top") == LOCKED_FILES[:2]


def test_requirements_are_for_one_python(pin: Pin, tmp_path: Path) -> None:
    component = tmp_path / "mine/components/top/component.yaml"
    component.write_text(component.read_text().replace('{python: "${python}"}', '{python: "*"}'))
    with pytest.raises(RecipeError, match="requirements but does not pin a Python version"):
        pin("top")


def test_a_lock_that_is_damaged_is_made_again(pin: Pin, tmp_path: Path) -> None:
    pin("top")
    lock = _lock(tmp_path, "2.0-py312.txt")
    whole = lock.read_text()
    lock.write_text(whole.replace("needed==1.0", "<<<<<<< HEAD\nneeded==1.0"))
    assert pin("top") == LOCKED_FILES[1:2]
    assert lock.read_text() == whole


IMAGE = """\
summary: An image with packages of its own
base: {debian: "12"}
components: {python: "3.11"}
requirements: requirements.txt
"""


@pytest.fixture
def image(pin: Pin, tmp_path: Path) -> Path:
    """The lock of an image that wants `top`, and has it."""
    directory = tmp_path / "mine/images"
    directory.mkdir()
    (directory / "own.yaml").write_text(IMAGE)
    (directory / "requirements.txt").write_text("top\n")
    assert pin("own") == ("requirements.txt.lock: 2 packages",)
    return directory / "requirements.txt.lock"


@pytest.fixture
def without_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out Debian's packages, which `test_apt_locking` locks with the real apt."""
    monkeypatch.setattr(apt_suite, "lock", lambda *arguments, **options: [])
    monkeypatch.setattr(drift, "newer_packages", lambda *arguments: [])


@pytest.mark.usefixtures("without_mirrors")
def test_an_images_own_packages_stay_until_an_upgrade(pin: Pin, tmp_path: Path, image: Path) -> None:
    wheel(tmp_path / "wheels", "needed", "1.1")
    assert pin("own") == ("everything is locked",)
    assert _names(image) == ["needed==1.0", "top==2.0"]
    pin("own", upgrade=True)
    assert _names(image) == ["needed==1.1", "top==2.0"]


def test_a_new_requirement_keeps_the_locked_versions(pin: Pin, tmp_path: Path, image: Path) -> None:
    wheel(tmp_path / "wheels", "needed", "1.1")
    (image.parent / "requirements.txt").write_text("top\nonly-old\n")

    pin("own")

    assert _names(image) == ["needed==1.0", "only-old==1.0", "top==2.0"]


def test_a_changed_requirement_changes_only_the_versions_that_it_excludes(
    pin: Pin, tmp_path: Path, image: Path
) -> None:
    for name in ("needed", "only_old"):
        wheel(tmp_path / "wheels", name, "1.1")
    (image.parent / "requirements.txt").write_text("top\nonly-old==1.0\n")
    pin("own")
    (image.parent / "requirements.txt").write_text("top\nonly-old>1.0\n")

    pin("own")

    assert _names(image) == ["needed==1.0", "only-old==1.1", "top==2.0"]


def test_an_images_own_packages_change_where_they_fit_no_more(pin: Pin, tmp_path: Path, image: Path) -> None:
    (tmp_path / "wheels/needed-1.0-py3-none-any.whl").unlink()
    wheel(tmp_path / "wheels", "needed", "1.1")
    pin("own")
    assert _names(image) == ["needed==1.1", "top==2.0"]


def test_a_wheel_of_a_component_satisfies_the_requirements_of_an_image(
    pin: Pin, tmp_path: Path, image: Path
) -> None:
    component = tmp_path / "mine/components/top/component.yaml"
    component.write_text(component.read_text().replace("unknown", f"{'0' * 64}, bytes: 1"))
    pin("top")
    wheel(tmp_path / "wheels", "other", "1.0", requires=("needed>=5",))
    (image.parent / "own.yaml").write_text(IMAGE.replace('{python: "3.11"}', '{python: "3.11", top: "1.0"}'))
    (image.parent / "requirements.txt").write_text("other\nneeded\n")

    pin("own")

    assert _names(image) == ["needed==9.0", "other==1.0"]
    assert "needed==9.0  # installed by a component\n" in image.read_text()


WITH_TOP = IMAGE.replace('{python: "3.11"}', '{python: "3.11", top: "2.0"}\nvariants: {top: "py*"}')


def test_a_lock_of_an_image_replaces_what_a_component_needs_in_any_version(
    pin: Pin, tmp_path: Path, image: Path
) -> None:
    wheel(tmp_path / "wheels", "needed", "0.9")
    wheel(tmp_path / "wheels", "other", "1.0", requires=("needed<1",))
    pin("top")
    (image.parent / "own.yaml").write_text(WITH_TOP)
    (image.parent / "requirements.txt").write_text("other\n")

    assert pin("own") == (
        "requirements.txt.lock: needed 0.9 replaces 1.0 of a component",
        "needed 1.0 -> 0.9 in own",
        "other 1.0 added in own",
        "top 2.0 removed in own",
    )
    assert pin("own") == ("everything is locked",)
    workspace = open_workspace(tmp_path)
    resolution = resolve(workspace.recipes["own"], workspace.catalog)
    owned = [f"{package.name} {package.version}" for package in resolution.owners["top"]]
    assert owned == ["needed 0.9", "only-old 1.0", "top 2.0"]
    assert [package.name for package in resolution.user_packages] == ["other"]


OLDER = """\
summary: A part that works with an old release of a package that `top` locks
replaces: [needed]
releases:
  - version: "1.0"
    requires: {python: "3.11"}
    requirements: [other]
    lock: lock.txt
"""


@pytest.fixture
def replaced(pin: Pin, tmp_path: Path, image: Path) -> Path:
    """The lock of an image in which a component replaces a package of another."""
    wheel(tmp_path / "wheels", "needed", "0.9")
    wheel(tmp_path / "wheels", "other", "1.0", requires=("needed<1",))
    older = tmp_path / "mine/components/older"
    older.mkdir()
    (older / "component.yaml").write_text(OLDER)
    pin("top", "older")
    (image.parent / "own.yaml").write_text(WITH_TOP.replace('top: "2.0"', 'top: "2.0", older: "*"'))
    return image


def test_a_lock_of_an_image_has_what_a_component_installs_in_place_of_another_s_package(
    pin: Pin, tmp_path: Path, replaced: Path
) -> None:
    (replaced.parent / "requirements.txt").write_text("needed\n")

    pin("own")

    assert _names(replaced) == ["needed==0.9"]
    assert replaced.read_text().endswith(" replaces 1.0\n")
    workspace = open_workspace(tmp_path)
    resolution = resolve(workspace.recipes["own"], workspace.catalog)
    owned = [package for packages in resolution.owners.values() for package in packages]
    assert [package.version for package in owned if package.name == "needed"] == ["0.9"]


def test_a_requirement_that_contradicts_a_replacing_component_is_reported(pin: Pin, replaced: Path) -> None:
    (replaced.parent / "requirements.txt").write_text("needed>=1\n")

    with pytest.raises(ConflictError) as caught:
        pin("own")

    assert "  because older 1.0 locks needed 0.9 " in error_text(caught.value)


def test_a_requirement_that_contradicts_a_component_is_reported_at_its_line(
    pin: Pin, tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "other", "1.0", requires=("top<2",))
    wheel(tmp_path / "wheels", "other", "2.0")
    wheel(tmp_path / "wheels", "top", "1.0")
    pin("top")
    (image.parent / "own.yaml").write_text(WITH_TOP)
    (image.parent / "requirements.txt").write_text("needed\nother<2\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConflictError) as caught:
        pin("own")

    head, cause, end = re.split(r"(?s)(    \| cause: .*?\n)(?=\n)", error_text(caught.value))
    assert head == (
        "error: `other<2` does not fit the components of image `own`\n"
        "  --> mine/images/requirements.txt:2:1\n"
        "   |\n"
        " 2 | other<2\n"
        "   | ^^^^^^^\n"
        "  because top 2.0 (py311) needs top==2.0   mine/components/top/component.yaml:9:15\n"
    )
    # uv explains it in one order or another
    assert {"top<2", "other<2", "top==2.0"} <= {word.strip(",.") for word in cause.split()}
    assert end == "\nhint: ask for `other==2.0`, which fits, or for another version of the component\n"


ABOVE = """\
summary: A part whose package requires any release of `top`
releases:
  - version: "1.0"
    requires: {python: "3.11"}
    requirements: [above==1.0]
    lock: lock.txt
"""


def test_a_component_that_the_conflict_does_not_name_is_not_compared(
    pin: Pin, tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, it would try older releases of `top`, each of which may have to be built."""
    wheel(tmp_path / "wheels", "other", "1.0", requires=("top<2",))
    wheel(tmp_path / "wheels", "top", "1.0")
    wheel(tmp_path / "wheels", "above", "1.0", requires=("top",))
    (tmp_path / "mine/components/above").mkdir()
    (tmp_path / "mine/components/above/component.yaml").write_text(ABOVE)
    pin("top", "above")
    (image.parent / "own.yaml").write_text(WITH_TOP.replace('top: "2.0"', 'top: "2.0", above: "*"'))
    (image.parent / "requirements.txt").write_text("other<2\n")
    asked: list[list[str]] = []
    versions = pylock.versions

    def recorded(texts: Sequence[str], *arguments: Any, **options: Any) -> dict[str, str]:
        asked.append([*texts])
        return versions(texts, *arguments, **options)

    monkeypatch.setattr(pylock, "versions", recorded)
    with pytest.raises(ConflictError) as caught:
        pin("own")

    assert " top 2.0 (py311) needs top==2.0 " in error_text(caught.value)
    assert ["other<2", "top==2.0"] in asked
    assert ["other<2", "above==1.0"] not in asked


def test_a_requirement_without_any_version_is_reported_at_its_line(
    pin: Pin, tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image.parent / "requirements.txt").write_text("top\nunheard-of\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConflictError) as caught:
        pin("own")

    assert error_text(caught.value).startswith(
        "error: no version satisfies `unheard-of`\n  --> mine/images/requirements.txt:2:1\n"
    )


def test_a_local_wheel_is_found_by_its_path(pin: Pin, tmp_path: Path, image: Path) -> None:
    path = wheel(tmp_path / "mine/own", "mine", "1.0", requires=("needed",))
    (image.parent / "requirements.txt").write_text(f"../own/{path.name}\n")

    assert pin("own") == ("mine 1.0 added in own", "top 2.0 removed in own")
    assert image.read_text().splitlines()[2].endswith(f" from ../own/{path.name}")
    plan = select(open_workspace(tmp_path), ["own"]).plan
    [file] = [file for file in required_files(plan.images).files if file.project == "mine"]
    assert DownloadConfig((), PipConfig(no_index=True), None, {}).here(file).__next__().samefile(path)


@pytest.mark.usefixtures("without_mirrors")
def test_packages_that_an_image_hardly_wants_are_pointed_out(pin: Pin, tmp_path: Path, image: Path) -> None:
    wheel(tmp_path / "wheels", "xgboost", "3.0", requires=("nvidia-nccl-cu12",))
    for name in ("nvidia_nccl_cu12", "opencv_python", "opencv_python_headless"):
        wheel(tmp_path / "wheels", name, "2.0")
    (image.parent / "requirements.txt").write_text("xgboost\nopencv-python\nopencv-python-headless\n")

    locked = pin("own")[:2]

    assert locked == (
        "own: packages for GPUs in an image without CUDA: nvidia-nccl-cu12 (1 kB); "
        "use xgboost-cpu instead of xgboost",
        "own: one library in several packages: opencv-python, opencv-python-headless; keep one of them",
    )
    drifts = [drift for drift in _check(tmp_path, "own") if drift.kind is DriftKind.QUESTIONABLE]
    assert drifts == [Drift(DriftKind.QUESTIONABLE, "own", locked[0].removeprefix("own: "))]
    locking.require_locked(drifts)


def test_packages_that_require_each_other_are_both_kept(pin: Pin, tmp_path: Path, image: Path) -> None:
    wheel(tmp_path / "wheels", "engine", "1.0", requires=("bridge",))
    wheel(tmp_path / "wheels", "bridge", "1.0", requires=("engine-cu12",))
    wheel(tmp_path / "wheels", "engine_cu12", "1.0")
    (image.parent / "requirements.txt").write_text("engine\n")

    assert not [line for line in pin("own") if "keep one of them" in line]

    wheel(tmp_path / "wheels", "engine", "1.0")
    (image.parent / "requirements.txt").write_text("engine==1.0\nengine-cu12\n")
    advice = "own: one library in several packages: engine, engine-cu12; keep one of them"
    assert advice in pin("own")


def test_a_lock_is_checked_against_the_components(pin: Pin, tmp_path: Path, image: Path) -> None:
    pin("top")
    (image.parent / "own.yaml").write_text(WITH_TOP)
    (tmp_path / "mine/components/top/locks/2.0-py311.txt").write_text(
        _lock(tmp_path, "2.0-py311.txt").read_text().replace("needed==1.0", "needed==1.1")
    )

    with pytest.raises(ConflictError, match="no versions satisfy image `own`"):
        locking.check_locks(tmp_path, ["own"], lambda _: None)


@pytest.mark.usefixtures("without_mirrors")
def test_a_lock_that_was_changed_by_hand_is_reported_and_made_again(
    pin: Pin, tmp_path: Path, image: Path
) -> None:
    whole = image.read_text()
    image.write_text("".join(line for line in whole.splitlines(keepends=True) if "needed" not in line))

    [found] = _check(tmp_path, "own")
    assert (found.kind.value, found.text) == (
        "changed after `bake lock` wrote it",
        "requirements.txt.lock",
    )
    assert pin("own") == ("needed 1.0 added in own",)
    assert image.read_text() == whole


def test_a_family_of_images_can_be_named(pin: Pin, tmp_path: Path, image: Path) -> None:
    text = IMAGE.replace("summary", 'name: "own-py${python|tag}"\nmatrix: {python: ["3.11"]}\nsummary')
    (image.parent / "own.yaml").write_text(text.replace('python: "3.11"}\nreq', 'python: "${python}"}\nreq'))
    image.unlink()
    pin("own")
    assert _names(image) == ["needed==1.0", "top==2.0"]


def _check(tmp_path: Path, *patterns: str) -> tuple[Drift, ...]:
    return locking.check_locks(tmp_path, patterns, lambda _: None)


def test_a_components_locks_are_checked_though_no_image_has_it(pin: Pin, tmp_path: Path) -> None:
    assert [drift.kind for drift in _check(tmp_path, "top")] == [DriftKind.NOT_LOCKED] * 3
    pin("top")
    wheel(tmp_path / "wheels", "needed", "1.1")
    component = tmp_path / "mine/components/top/component.yaml"
    component.write_text(component.read_text().replace('["top==2.0"]', '["top==2.0", "needed==1.0"]'))
    drifts = _check(tmp_path, "top")
    assert Drift(DriftKind.OLDER, "top 1.0 (own-wheel)", "1.0.txt") in drifts
    assert Drift(DriftKind.NEWER_PYTHON, "top 2.0 (py312)", "needed 1.0 -> 1.1") in drifts


def test_two_runs_at_once_wait_for_each_other(pin: Pin, tmp_path: Path) -> None:
    messages: Queue[str] = Queue()
    with ThreadPoolExecutor(1) as pool:
        with exclusive(find(tmp_path).state / "locks/lock"):
            run = pool.submit(locking.run, tmp_path, ["top"], messages.put)
            assert messages.get(timeout=60) == "waiting for another `bake lock` to end"
            assert not _lock(tmp_path, "1.0.txt").exists()
        assert run.result(60) == LOCKED_FILES


def test_an_unknown_name_is_reported(pin: Pin) -> None:
    with pytest.raises(UsageError) as caught:
        pin("top", "tip", "tap-*")
    assert error_text(caught.value).startswith("error: no image, component or locked package matches `tip`\n")
    assert "error: no image, component or locked package matches `tap-*`\n" in error_text(caught.value)


def test_a_package_is_locked_anew_by_an_upgrade_alone(pin: Pin, tmp_path: Path) -> None:
    for ask in (pin, partial(_check, tmp_path)):
        with pytest.raises(UsageError) as caught:
            ask("openssh-server")
        assert error_text(caught.value) == (
            "error: `openssh-server` is a locked package, not an image or component\n\n"
            "hint: run `bake lock --upgrade openssh-server` to lock it again\n"
        )
