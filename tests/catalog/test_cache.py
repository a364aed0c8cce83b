"""A project that was kept: the same as one that is read, never an older one, and never anything else."""

import io
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog import cache as caching
from bakehouse.catalog import catalog as reading
from bakehouse.catalog import recipe as recipes
from bakehouse.catalog import source_tree
from bakehouse.catalog.cache import Loaded, derived, load
from bakehouse.catalog.catalog import Catalog, load_catalog, read_directory
from bakehouse.catalog.component import Component
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes, read_recipes
from bakehouse.errors import Problems
from bakehouse.plan.workspace import conflict_text
from bakehouse.util.files import open_file
from tests.support.requirements_locks import locked_heading
from tests.support.trees import IMAGE, Tree

NEXT_TICK = 0.05
"""Seconds in which the clock of each file system advances."""
CODE = "code: {directory: ../src, entry_point: train.py}\n"


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return directory / "bakehouse"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep at once, although the files of tests are new."""
    monkeypatch.setattr(caching, "_SETTLED", -(10**12))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One for each time that a project is read anew."""
    roots_read: list[object] = []

    def counted(*arguments: object) -> Catalog:
        roots_read.append(arguments[0])
        return load_catalog(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "load_catalog", counted)
    return roots_read


@pytest.fixture
def own(tree: Tree) -> Tree:
    """A project with an image that contains code, and one with Python packages."""
    tree.write("src/train.py", "pass\n")
    tree.write("src/lib/model.py", "pass\n")
    tree.write("packages.lock", f"numpy==2.0 --hash=sha256:{'0' * 64}  # numpy-2.0.whl 10\n")
    tree.component("extra", 'summary: x\nreleases: [{version: "1"}]\n')
    tree.image(IMAGE + CODE, "coded")
    tree.image(IMAGE + "requirements: ../packages.lock\n", "locked")
    return tree


def take(tree: Tree) -> Loaded:
    loaded = load([tree.root], tree.root)
    assert_same(tree, loaded)
    return loaded


def assert_same(tree: Tree, loaded: Loaded) -> None:
    """Assert that a project is as its files say now."""
    catalog = load_catalog([tree.root])
    recipes = read_recipes([tree.root], catalog, project=tree.root)
    assert loaded.catalog == catalog
    assert dict(loaded.recipes.by_name) == recipes.by_name
    assert [*loaded.recipes.by_name] == [*recipes.by_name]
    assert loaded.catalog.provided_names == catalog.provided_names
    assert vars(loaded.catalog.links) == vars(catalog.links)


def cache_file(cache: Path) -> Path:
    [file] = cache.iterdir()
    return file


@pytest.mark.usefixtures("settled")
def test_it_is_read_once(own: Tree, cache: Path, reads: list[object]) -> None:
    take(own)
    assert len(reads) == 1
    kept = take(own)

    assert kept.kept
    assert len(reads) == 1
    assert cache_file(cache).stat().st_mode & 0o022 == 0
    assert len(reads) == 1


@pytest.mark.usefixtures("cache", "settled")
def test_the_catalogue_of_bakehouse_is_the_same_from_the_cache() -> None:
    roots = [HOME / "recipes"]
    load(roots, refusal_of=conflict_text)
    loaded = load(roots)

    assert loaded.kept
    assert loaded.catalog == load_catalog(roots)
    assert dict(loaded.recipes.by_name) == load_recipes(roots, load_catalog(roots), refusal_of=conflict_text)


def rewritten(path: Path, change: Callable[[str], str]) -> None:
    """Change a text, and set the time of its last change back."""
    status = path.stat()
    path.write_text(change(path.read_text()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


CHANGES: dict[str, Callable[[Tree], object]] = {
    "a release": lambda tree: tree.component("python", 'summary: x\nreleases: [{version: "3.11"}]\n'),
    "a template": lambda tree: tree.write("components/python/install.j2", "{% block build %}{% endblock %}"),
    "a file of a component": lambda tree: tree.write("components/python/files/a", "a"),
    "a check": lambda tree: tree.write("components/python/smoke.py", ""),
    "a component more": lambda tree: tree.component("more", 'summary: x\nreleases: [{version: "1"}]\n'),
    "a component less": lambda tree: shutil.rmtree(tree.root / "components/extra"),
    "a recipe": lambda tree: tree.image(IMAGE.replace("small", "other"), "small"),
    "a recipe more": lambda tree: tree.image(IMAGE, "more"),
    "a recipe less": lambda tree: (tree.root / "images/small.yaml").unlink(),
    "a renamed recipe": lambda tree: (tree.root / "images/small.yaml").rename(tree.root / "images/tiny.yaml"),
    "a letter, at the same time and size": lambda tree: rewritten(
        tree.root / "images/small.yaml", lambda text: text.replace("image", "thing")
    ),
    "a replaced file of the same time and size": lambda tree: replaced(tree.root / "src/train.py"),
    "code": lambda tree: tree.write("src/train.py", "fail\n"),
    "code below": lambda tree: tree.write("src/lib/model.py", "fail\n"),
    "code more": lambda tree: tree.write("src/lib/more.py", "pass\n"),
    "code less": lambda tree: (tree.root / "src/lib/model.py").unlink(),
    "executable code": lambda tree: (tree.root / "src/train.py").chmod(0o755),
    "ignored code": lambda tree: tree.write(".dockerignore", "src/lib\n"),
    "ignored code, by a file of its own": lambda tree: tree.write("src/.dockerignore", "lib\n"),
    "packages": lambda tree: rewritten(tree.root / "packages.lock", lambda text: text.replace("2.0", "2.1")),
    "pins": lambda tree: tree.write("pins.yaml", "files: {}\n"),
}


def replaced(path: Path) -> None:
    """Replace a file by another one of the same size, times and mode."""
    status, new = path.stat(), path.with_name("new")
    new.write_text("exit\n")
    new.chmod(status.st_mode)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


@pytest.mark.usefixtures("cache", "settled")
@pytest.mark.parametrize("change", CHANGES)
def test_it_is_read_anew_after_any_change(change: str, own: Tree) -> None:
    take(own)
    time.sleep(NEXT_TICK)
    CHANGES[change](own)
    take(own)
    # And then it is kept
    assert take(own).kept


@pytest.mark.usefixtures("cache")
def test_a_file_that_changes_at_once_is_never_taken_for_the_old_one(own: Tree) -> None:
    """The same size, within one step of the file system's clock, as git calls racy."""
    for digit in "1234567890":
        own.write("packages.lock", f"numpy==2.{digit} --hash=sha256:{'0' * 64}  # numpy-2.0.whl 10\n")
        assert take(own).kept is None


@pytest.mark.usefixtures("cache")
def test_it_is_kept_once_its_files_are_old_enough(own: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert take(own).kept is None
    monkeypatch.setattr(time, "time_ns", lambda: 10**10 + int(time.time() * 10**9))
    take(own)
    assert take(own).kept


@pytest.mark.usefixtures("cache", "settled")
def test_a_file_that_changes_while_it_is_read_is_read_again(
    own: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "_SETTLED", 0)
    time.sleep(NEXT_TICK)

    def slow(*arguments: object) -> Catalog:
        catalog = load_catalog(*arguments)  # type: ignore[arg-type]
        time.sleep(NEXT_TICK)
        own.component("python", 'summary: x\nreleases: [{version: "3.11"}]\n')
        return catalog

    monkeypatch.setattr(reading, "load_catalog", slow)
    assert load([own.root], own.root).kept is None


@pytest.mark.usefixtures("cache", "settled")
def test_other_code_and_other_settings_read_their_own(
    own: Tree, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    take(own)
    load([own.root], own.root / "src")
    load([own.root])
    assert len(reads) == 3

    monkeypatch.setattr(sys, "version", "4.0")
    take(own)
    assert len(reads) == 4


@pytest.mark.usefixtures("cache", "settled")
def test_an_upgrade_of_bakehouse_or_a_library_reads_anew(own: Tree) -> None:
    kept = load([own.root]).kept

    assert kept
    code = Path(caching.__file__).parents[1]
    assert {str(code / "catalog/recipe.py"), str(code / "errors.py"), str(code / "plan/planner.py")} < {
        *kept.statuses
    }
    assert any(Path(path).name == "site-packages" for path in kept.statuses)


@pytest.mark.usefixtures("cache", "settled")
def test_mistakes_are_read_once(own: Tree, reads: list[object]) -> None:
    own.image("sumary: x\n", "wrong")
    own.component("odd", "summary: x\nrelaeses: []\n")

    first, second = load([own.root], own.root), load([own.root], own.root)

    assert len(reads) == 1
    assert [broken.family for broken in second.recipes.broken] == ["wrong"]
    assert second.recipes.broken == first.recipes.broken
    assert [broken.name for broken in second.catalog.broken] == ["odd"]
    assert second.catalog.broken == first.catalog.broken
    assert [*second.recipes.by_name] == [*first.recipes.by_name]


@pytest.mark.usefixtures("settled")
def test_a_project_whose_path_begins_with_that_of_the_caches_is_read_anew_after_a_change(
    own: Tree, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = own.root.rename(own.root.with_name("bakehouse-demo"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.parent))
    tree = Tree(project)
    load([project], project)
    tree.image(IMAGE, "later")

    assert "later" in load([project], project).recipes.by_name
    assert len(reads) == 2


MENDED_MISTAKES: list[tuple[str, str, Callable[[Tree], object]]] = [
    ("a corrected recipe", "sumary: x\n", lambda tree: tree.image(IMAGE, "wrong")),
    (
        "a new lock",
        f"{IMAGE}requirements: ../more.txt\n",
        lambda tree: tree.write("more.txt.lock", f"{locked_heading(tree.root / 'more.txt', 'wrong')}\n"),
    ),
    (
        "a new entry point",
        f"{IMAGE}code: {{directory: ../src, entry_point: later.py}}\n",
        lambda tree: tree.write("src/later.py", "pass\n"),
    ),
    (
        "a new directory",
        f"{IMAGE}code: {{directory: ../later, entry_point: train.py}}\n",
        lambda tree: tree.write("later/train.py", "pass\n"),
    ),
    (
        "a new component",
        IMAGE.replace("components: {", "components: {later: '*', "),
        lambda tree: tree.component("later", 'summary: x\nreleases: [{version: "1"}]\n'),
    ),
]


@pytest.mark.usefixtures("cache", "settled")
@pytest.mark.parametrize(
    ("recipe", "mend"), [case[1:] for case in MENDED_MISTAKES], ids=[case[0] for case in MENDED_MISTAKES]
)
def test_a_mended_mistake_is_seen(own: Tree, recipe: str, mend: Callable[[Tree], object]) -> None:
    own.write("more.txt", "")
    own.image(recipe, "wrong")
    for _ in range(2):
        assert [broken.family for broken in load([own.root], own.root).recipes.broken] == ["wrong"]

    mend(own)

    assert "wrong" in take(own).recipes.by_name


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("keep", [0, 10, 40, 400, 100_000])
def test_what_was_cut_off_is_read_anew(keep: int, own: Tree, cache: Path, reads: list[object]) -> None:
    take(own)
    data = cache_file(cache).read_bytes()
    cache_file(cache).write_bytes(data[: min(keep, len(data) - 1)])
    take(own)

    assert len(reads) == 2


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_what_others_may_write_is_not_read(mode: int, own: Tree, cache: Path, reads: list[object]) -> None:
    take(own)
    cache_file(cache).chmod(mode)
    take(own)

    assert len(reads) == 2


@pytest.mark.usefixtures("settled")
def test_the_file_of_another_user_is_not_read(
    own: Tree, cache: Path, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    take(own)
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    take(own)

    assert len(reads) == 2


@pytest.mark.usefixtures("settled")
def test_a_directory_that_others_may_write_is_not_used(own: Tree, cache: Path, reads: list[object]) -> None:
    take(own)
    cache.chmod(0o777)
    take(own)
    take(own)

    assert len(reads) == 3


@pytest.mark.usefixtures("settled")
def test_a_link_is_not_followed(own: Tree, cache: Path, reads: list[object], tmp_path: Path) -> None:
    take(own)
    file = cache_file(cache)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    take(own)

    assert len(reads) == 2


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch harmed",)


class Deceiving:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return getattr, ("bakehouse.catalog.catalog", "os")


class Made:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return caching._made, (7, "x")


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("value", [Harmful(), Deceiving(), Made(), "nothing", 7, ({"/": 7}, {})])
def test_nothing_but_a_project_comes_out(value: object, own: Tree, cache: Path, reads: list[object]) -> None:
    take(own)
    file = cache_file(cache)
    identity, data = file.read_bytes()[:32], pickle.dumps(value)
    file.write_bytes(identity + sha256(data).digest() + data)
    take(own)

    assert len(reads) == 2
    assert not Path("harmed").exists()


@pytest.mark.usefixtures("settled")
def test_without_a_place_for_it_it_is_read(
    own: Tree, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    take(own)
    take(own)

    assert len(reads) == 2


@pytest.mark.usefixtures("settled")
def test_what_cannot_be_written_is_read(
    own: Tree, cache: Path, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(caching, "write_whole", full)
    take(own)
    take(own)

    assert len(reads) == 2
    assert [*cache.iterdir()] == []


@pytest.mark.usefixtures("settled")
def test_a_large_project_is_not_kept(own: Tree, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_MAX_BYTES", 1000)
    assert take(own).kept is None
    monkeypatch.setattr(caching, "_MAX_BYTES", 10**6)
    monkeypatch.setattr(caching, "_MAX_FILES", 5)
    assert take(own).kept is None
    assert [*cache.iterdir()] == []


@pytest.mark.usefixtures("settled", "cache")
def test_code_that_images_share_is_read_and_kept_once(own: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size does not count, and the cache has one list of files, however many images name it."""
    for number in range(8):
        own.write(f"images/other{number}.yaml", IMAGE + CODE)
    for number in range(50):
        own.write(f"src/m{number}.py", f"{number}" * 100_000)
    opened: list[str] = []

    def opening(path: Path) -> io.BufferedReader:
        opened.append(path.name)
        return open_file(path)

    monkeypatch.setattr(source_tree, "open_file", opening)

    anew = load([own.root], own.root)
    codes = [anew.recipes.by_name[f"other{number}"].content.code for number in range(8)]
    assert opened.count("m7.py") == 1
    assert all(code is codes[0] for code in codes)

    kept = take(own)
    assert kept.kept
    assert len(b"".join(kept.kept.values.values())) < 100_000
    again = [kept.recipes.by_name[f"other{number}"].content.code for number in range(8)]
    assert again == codes
    assert all(code is again[0] for code in again)


WRITER = """
import sys
from pathlib import Path
from bakehouse.catalog import cache
cache._SETTLED = -(10**12)
root = Path(sys.argv[1])
for _ in range(10):
    loaded = cache.load([root], root)
    assert "coded" in loaded.recipes.by_name and loaded.recipes.by_name["coded"].content.code
    for file in (Path(sys.argv[2])).glob("*.cache"):
        file.unlink(missing_ok=True)
"""


def test_processes_write_it_at_the_same_time(own: Tree, cache: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(own.root), str(cache)]
    writers = [subprocess.Popen(command, cwd=HOME, stderr=subprocess.PIPE) for _ in range(3)]

    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [(b"", 0)] * 3


@pytest.mark.usefixtures("settled")
def test_a_few_are_kept(cache: Path, tmp_path: Path) -> None:
    for number in range(20):
        tree = Tree(tmp_path / str(number))
        tree.component("part", 'summary: x\nreleases: [{version: "1"}]\n')
        load([tree.root])

    assert len([*cache.iterdir()]) == 16


@pytest.mark.usefixtures("cache", "settled")
def test_one_that_is_in_use_is_kept(tmp_path: Path, reads: list[object]) -> None:
    trees = [Tree(tmp_path / str(number)) for number in range(20)]
    for tree in trees:
        tree.component("part", 'summary: x\nreleases: [{version: "1"}]\n')
        load([tree.root])
        time.sleep(NEXT_TICK)
        load([trees[0].root])

    assert len(reads) == len(trees)


@pytest.mark.usefixtures("cache", "settled")
def test_a_value_that_follows_from_files_is_computed_once(tmp_path: Path) -> None:
    directory = tmp_path / "below"
    directory.mkdir()
    read, walked = tmp_path / "read", directory / "walked"
    read.write_text("1")
    walked.write_text("1")
    computed: list[str] = []

    def compute() -> list[str]:
        computed.append(read.read_text() + walked.read_text())
        return [*computed]

    def value(*of: str) -> list[str]:
        time.sleep(NEXT_TICK)
        return derived("value", of, compute, [directory])

    assert value("a") == value("a") == ["11"]
    read.write_text("2")
    assert value("a") == value("a") == ["11", "21"]
    walked.write_text("2")
    assert value("a") == value("a") == ["11", "21", "22"]
    (directory / "new").write_text("")
    assert value("a") == value("a") == ["11", "21", "22", "22"]
    assert len(value("b")) == 5
    assert len(value("a")) == 4


@pytest.fixture
def project(own: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Path], list[str]]:
    """The directories of recipes: those of Bakehouse and of a project; and the components that are read."""
    names: list[str] = []

    def counted(directory: Path, problems: Problems) -> Component:
        names.append(directory.name)
        return read_directory(directory, problems)

    monkeypatch.setattr(reading, "read_directory", counted)
    theirs = Tree(tmp_path / "project")
    theirs.component("theirs", 'summary: x\nreleases: [{version: "1"}]\n')
    theirs.component("extra", 'summary: x\nreleases: [{version: "2"}]\n')
    theirs.image(IMAGE, "mine")
    return [own.root, theirs.root], names


@pytest.mark.usefixtures("cache", "settled")
def test_components_of_bakehouse_stay_valid_when_a_project_changes(
    project: tuple[list[Path], list[str]],
) -> None:
    roots, names = project
    load(roots)
    assert {"debian", "python", "theirs"} <= {*names}
    names.clear()
    time.sleep(NEXT_TICK)
    Tree(roots[1]).image(IMAGE.replace("small", "other"), "mine")
    loaded = load(roots)

    assert sorted(names) == ["extra", "theirs"]
    assert loaded.catalog == load_catalog(roots)
    assert loaded.catalog.components["extra"].releases[0].version == "2"


@pytest.mark.usefixtures("cache", "settled")
def test_components_of_bakehouse_are_read_anew_after_a_change(project: tuple[list[Path], list[str]]) -> None:
    roots, _ = project
    load(roots)
    time.sleep(NEXT_TICK)
    Tree(roots[0]).component("python", 'summary: x\nreleases: [{version: "3.11"}]\n')
    loaded = load(roots)

    assert loaded.catalog == load_catalog(roots)
    assert [release.version for release in loaded.catalog.components["python"].releases] == ["3.11"]


@pytest.mark.usefixtures("cache", "settled")
@pytest.mark.parametrize("text", ["summary: x\n", "summary: [\n"])
def test_a_mistake_in_components_of_bakehouse_is_told_each_time(
    project: tuple[list[Path], list[str]], text: str
) -> None:
    roots, _ = project
    Tree(roots[0]).component("python", text)
    assert [broken.name for broken in load(roots).catalog.broken] == ["python"]
    assert [broken.name for broken in load(roots).catalog.broken] == ["python"]


@pytest.fixture
def families(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recipe files that are read, by name."""
    names: list[str] = []

    def counted(path: Path, *arguments: Any) -> list[Recipe]:
        names.append(path.name)
        return load_family(path, *arguments)

    load_family = recipes._load_family
    monkeypatch.setattr(recipes, "_load_family", counted)
    return names


@pytest.mark.usefixtures("cache", "settled")
def test_recipes_of_bakehouse_stay_valid_when_a_project_changes(
    project: tuple[list[Path], list[str]], families: list[str]
) -> None:
    roots, _ = project
    shutil.rmtree(roots[1] / "components/extra")
    load(roots)
    assert {"coded.yaml", "mine.yaml"} <= {*families}
    families.clear()
    time.sleep(NEXT_TICK)
    Tree(roots[1]).image(IMAGE.replace("small", "other"), "mine")
    loaded = load(roots)

    assert families == ["mine.yaml"]
    assert dict(loaded.recipes.by_name) == read_recipes(roots, loaded.catalog).by_name
    time.sleep(NEXT_TICK)
    Tree(roots[0]).write("src/train.py", "fail\n")
    assert dict(load(roots).recipes.by_name) == read_recipes(roots, loaded.catalog).by_name


PROJECTS: dict[str, tuple[Callable[[Tree, Tree], object], str | None]] = {
    "a recipe of the same name": (
        lambda _, theirs: theirs.image(IMAGE.replace("small", "other"), "coded"),
        None,
    ),
    "a replaced component": (
        lambda _, theirs: theirs.component("debian", 'summary: x\nreleases: [{version: "12"}]\n'),
        None,
    ),
    "a project around them": (lambda *_: None, "../.."),
    "a project at the same place": (lambda own, _: own.write(".dockerignore", "src/lib\n"), "."),
    "a project in them": (lambda own, _: own.write("src/images/x.txt", ""), "src"),
}
"""Changes of Bakehouse's recipes by a project, and its directory relative to theirs."""


@pytest.mark.usefixtures("cache", "settled")
@pytest.mark.parametrize("kind", PROJECTS)
def test_a_project_that_changes_recipes_of_bakehouse_reads_them(
    kind: str, project: tuple[list[Path], list[str]]
) -> None:
    roots, _ = project
    shutil.rmtree(roots[1] / "components/extra")
    change, below = PROJECTS[kind]
    change(Tree(roots[0]), Tree(roots[1]))
    load(roots)
    directory = (roots[0] / below).resolve() if below else None
    loaded = load(roots, directory)

    catalog = load_catalog([roots[0]])
    own = read_recipes([roots[0]], catalog)
    changed = read_recipes(roots, load_catalog(roots, Problems()), project=directory)
    assert dict(loaded.recipes.by_name) == changed.by_name
    assert loaded.recipes.broken == changed.broken
    assert own.by_name["coded"] != changed.by_name.get("coded")


@pytest.mark.usefixtures("settled")
def test_a_project_is_kept_when_the_components_of_bakehouse_are_not(
    project: tuple[list[Path], list[str]], cache: Path, reads: list[object]
) -> None:
    roots, _ = project
    load(roots)
    time.sleep(NEXT_TICK)
    Tree(roots[1]).image(IMAGE.replace("small", "other"), "mine")
    # From the components in the cache
    load(roots)
    count = len(reads)
    for file in cache.glob("components-*"):
        file.unlink()

    assert load(roots).kept
    assert len(reads) == count
