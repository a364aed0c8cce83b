"""A catalogue that was kept: the same as one that is read, never an older one, and never anything else."""

import os
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from bakehouse.catalog import cache as catalogcache
from bakehouse.catalog.cache import cached_catalog
from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems
from tests.support.trees import Tree


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return directory / "bakehouse"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """One for each time that a catalogue is read anew."""
    roots_read: list[Path] = []

    def load(roots: list[Path], problems: Problems) -> Catalog:
        roots_read.extend(roots)
        return load_catalog(roots, problems)

    monkeypatch.setattr(catalogcache, "load_catalog", load)
    return roots_read


def take(tree: Tree) -> Catalog:
    problems = Problems()
    return cached_catalog([tree.root], problems)


def cache_file(cache: Path) -> Path:
    [file] = cache.iterdir()
    return file


def test_it_is_read_once(tree: Tree, cache: Path, reads: list[Path]) -> None:
    first, second = take(tree), take(tree)

    assert first == second == tree.catalog()
    assert reads == [tree.root]
    assert cache_file(cache).stat().st_mode & 0o022 == 0


def test_what_bakehouse_brings_is_the_same_from_the_cache(cache: Path) -> None:
    roots = [HOME / "recipes"]
    cached_catalog(roots, Problems())
    catalog = cached_catalog(roots, Problems())

    assert catalog == load_catalog(roots)
    assert catalog.provided_names == load_catalog(roots).provided_names


CHANGES: dict[str, Callable[[Tree], object]] = {
    "a release": lambda tree: tree.component("python", 'summary: x\nreleases: [{version: "3.13"}]\n'),
    "a template": lambda tree: tree.write("components/python/install.j2", "{% block build %}{% endblock %}"),
    "a file next to it": lambda tree: tree.write("components/python/files/a", "a"),
    "a check": lambda tree: tree.write("components/python/smoke.py", ""),
    "a component more": lambda tree: tree.component("more", 'summary: x\nreleases: [{version: "1"}]\n'),
    "a component less": lambda tree: (tree.root / "components/toolkit/component.yaml").unlink(),
    "a letter, at the same time and size": lambda tree: same_time(
        tree.root / "components/python/component.yaml", lambda text: text.replace("3.12", "3.13")
    ),
}


def same_time(path: Path, change: Callable[[str], str]) -> None:
    status = path.stat()
    path.write_text(change(path.read_text()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_read_anew_after_any_change(change: str, tree: Tree, cache: Path, reads: list[Path]) -> None:
    take(tree)
    CHANGES[change](tree)
    problems = Problems()
    catalog = cached_catalog([tree.root], problems)

    assert len(reads) == 2
    assert catalog == load_catalog([tree.root], Problems())


def test_one_with_mistakes_is_not_kept(tree: Tree, cache: Path, reads: list[Path]) -> None:
    tree.component("python", "summary: x\nrelaeses: []\n")
    for _ in range(2):
        problems = Problems()
        cached_catalog([tree.root], problems)
        assert problems
    assert len(reads) == 2


@pytest.mark.parametrize("keep", [0, 10, 40, 400])
def test_what_was_cut_off_is_read_anew(keep: int, tree: Tree, cache: Path, reads: list[Path]) -> None:
    take(tree)
    cache_file(cache).write_bytes(cache_file(cache).read_bytes()[:keep])

    assert take(tree) == tree.catalog()
    assert len(reads) == 2


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_what_others_may_write_is_not_read(mode: int, tree: Tree, cache: Path, reads: list[Path]) -> None:
    take(tree)
    cache_file(cache).chmod(mode)
    take(tree)

    assert len(reads) == 2


def test_a_directory_that_others_may_write_is_not_used(tree: Tree, cache: Path, reads: list[Path]) -> None:
    take(tree)
    cache.chmod(0o777)
    take(tree)
    take(tree)

    assert len(reads) == 3


def test_a_link_is_not_followed(tree: Tree, cache: Path, reads: list[Path], tmp_path: Path) -> None:
    take(tree)
    cache_file(cache).rename(tmp_path / "elsewhere")
    (cache / "catalog-x").unlink(missing_ok=True)
    name = sha256(str(tree.root).encode()).hexdigest()[:16]
    (cache / f"catalog-{name}").symlink_to(tmp_path / "elsewhere")
    take(tree)

    assert len(reads) == 2


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch harmed",)


class Deceiving:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return getattr, ("bakehouse.catalog.catalog", "os")


@pytest.mark.parametrize("value", [Harmful(), Deceiving(), "no catalogue", 7])
def test_nothing_but_a_catalogue_comes_out(value: object, tree: Tree, cache: Path, reads: list[Path]) -> None:
    take(tree)
    key, data = cache_file(cache).read_bytes()[:32], pickle.dumps(value)
    cache_file(cache).write_bytes(key + sha256(data).digest() + data)

    assert take(tree) == tree.catalog()
    assert len(reads) == 2
    assert not Path("harmed").exists()


def test_without_a_place_for_it_it_is_read(
    tree: Tree, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    take(tree)
    take(tree)

    assert len(reads) == 2


def test_a_few_are_kept(cache: Path, tmp_path: Path) -> None:
    for number in range(12):
        tree = Tree(tmp_path / str(number))
        tree.component("part", 'summary: x\nreleases: [{version: "1"}]\n')
        take(tree)

    assert len(list(cache.iterdir())) == 8
