"""Locks of components are made from what the components say, and left alone where they still are that."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse import locking
from bakehouse.errors import RecipeError, UsageError
from tests.wheels import wheel

COMPONENT = """\
summary: A part of which two variants are Python packages
releases:
  - version: "2.0"
    variants:
      - name: py${python|tag}
        each: {python: ["3.11", "3.12"]}
        requires: {python: "${python}"}
        requirements: ["top==2.0", 'only-old; python_version < "3.12"']
        lock: locks/2.0-py${python|tag}.txt
      - name: none
  - version: "1.0"
    variants:
      - name: own-wheel
        requires: {python: "3.11"}
        artifacts:
          wheel: {url: "https://x.example/needed-9.0-py3-none-any.whl", sha256: unknown}
        requirements: ["top==2.0"]
        lock: locks/1.0.txt
"""
MADE = ("2.0-py311.txt: 3 packages", "2.0-py312.txt: 2 packages", "1.0.txt: 1 packages")

Pin = Callable[..., tuple[str, ...]]


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pin:
    """Pins in a project with the component above and an index of three packages."""
    folder = tmp_path / "mine/components/top"
    folder.mkdir(parents=True)
    (folder / "component.yaml").write_text(COMPONENT)
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
        return locking.run(tmp_path, patterns, lambda _: None, upgrade=upgrade)

    return run


def _lock(tmp_path: Path, name: str) -> Path:
    return tmp_path / "mine/components/top/locks" / name


def _names(path: Path) -> list[str]:
    return [line.split(" ")[0] for line in path.read_text().splitlines() if not line.startswith("#")]


def test_a_components_locks_are_made_one_for_each_python(pin: Pin, tmp_path: Path) -> None:
    assert pin("top") == MADE
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
    assert pin("top") == MADE[:2]


def test_requirements_are_for_one_python(pin: Pin, tmp_path: Path) -> None:
    component = tmp_path / "mine/components/top/component.yaml"
    component.write_text(component.read_text().replace('{python: "${python}"}', '{python: "*"}'))
    with pytest.raises(RecipeError, match="requirements and no one Python"):
        pin("top")


def test_a_name_that_nothing_has_is_told(pin: Pin) -> None:
    with pytest.raises(UsageError, match="no image, component or locked package matches `tip`"):
        pin("tip")
