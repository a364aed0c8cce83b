"""Differences between two resolutions and between two commits."""

import subprocess
from collections.abc import Mapping

import pytest

from bakehouse.catalog.apt_lock import written
from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.catalog.git_history import Past, past
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import RecipeError, UsageError
from bakehouse.plan import diff
from bakehouse.plan.workspace import conflict_text
from tests.support.errors import raised
from tests.support.git_repository import commit
from tests.support.requirements_locks import locked_heading
from tests.support.trees import COMPONENTS, SHA, Tree

HEAD = "summary: x\nbase: debian\n"
REQUIREMENTS, CHANGED = b"pandas>=2\nsix\n", b"pandas>=3\nseven\n"
FIRST = """\
components: {torch: "*"}
environment: {A: "1", B: x}
packages: [vim, jq]
run: [echo old]
files: [{from: a.txt, to: /a.txt}, {from: b.sh, to: /b.sh}]
code: {directory: src, entry_point: train.py}
requirements: requirements.txt
"""
SECOND = """\
components: {torch: ">=2.0"}
environment: {A: "2", C: y}
packages: [vim=9, curl]
run: [echo new]
files: [{from: a.txt, to: /a.txt}]
code: {directory: src, entry_point: other.py}
requirements: later.txt
required: [components]
purpose: cpu
"""


def compared(tree: Tree, first: str, second: str) -> str:
    tree.image(HEAD + first)
    before = tree.resolve()
    tree.image(HEAD + second)
    return diff.compare(before, tree.resolve())


def state(tree: Tree) -> Past:
    """Read all of a tree at once, because its files change."""
    locks = read_locks([tree.root])
    _ = locks.debs
    return Past(tree.catalog(), tree.recipes(), {}, locks)


def test_parts_that_came_went_and_changed_are_reported(tree: Tree) -> None:
    text = compared(tree, 'components: {torch: "*", toolkit: "*"}\n', 'components: {torch: "2.8.0"}\n')

    expected = """\
  ~ python 3.11 → 3.12
  ~ torch 2.9.0 (cpu-py311) → 2.8.0
  - toolkit 5.1
"""
    assert text == expected


def test_what_a_component_provides_is_reported_where_its_version_is_the_same(tree: Tree) -> None:
    text = compared(
        tree,
        'components: {torch: "2.9.0"}\nvariants: {torch: "cpu*"}\n',
        'components: {torch: "2.9.0"}\nvariants: {torch: "cu*"}\n',
    )

    expected = """\
  ~ torch 2.9.0 (cpu-py311) → 2.9.0 (cu128-py311)
      provides cuda none → 12.8
"""
    assert text == expected


def test_pins_that_differ_are_reported(tree: Tree) -> None:
    base = "base: {image: cuda:1, build_image: devel:1}\n"
    tree.component(
        "debian", f"summary: x\nreleases:\n  - version: '1'\n    provides: {{glibc: '2'}}\n    {base}"
    )
    tree.image(HEAD + "components: {python: '*'}\n")
    tree.write("pins.yaml", f"images: {{cuda:1: sha256:{'a' * 64}}}\n")
    before = tree.resolve()
    tree.write("pins.yaml", f"images: {{cuda:1: sha256:{'b' * 64}, devel:1: sha256:{'c' * 64}}}\n")
    assert diff.compare(before, tree.resolve()) == (
        f"  ~ pin cuda:1 sha256:{'a' * 12} → sha256:{'b' * 12}\n  + pin devel:1 sha256:{'c' * 12}\n"
    )


def test_images_that_are_the_same_have_no_differences(tree: Tree) -> None:
    same = 'components: {torch: "*"}\n'

    assert compared(tree, same, same) == ""


def test_python_packages_are_reported_with_their_weight(tree: Tree) -> None:
    six = f"six==1.17 --hash=sha256:{SHA}  # s.whl 9\n"
    for name, size, extra in (("old", 1_000_000, ""), ("new", 3_000_000, six)):
        line = f"numpy=={len(name)}.{size} --hash=sha256:{SHA}  # n.whl {size}\n"
        tree.write(f"components/toolkit/{name}.txt", line + extra)
    tree.component(
        "toolkit",
        """\
summary: T
releases:
  - {version: "2", lock: new.txt}
  - {version: "1", lock: old.txt}
""",
    )
    text = compared(tree, 'components: {toolkit: "1"}\n', 'components: {toolkit: "2"}\n')

    expected = """\
  ~ toolkit 1 → 2  1.0 MB → 3.0 MB of Python packages
  2 Python packages differ; download size: 1.0 MB → 3.0 MB
      numpy 3.1000000 → 3.3000000
      + six 1.17
"""
    assert text == expected


def test_images_of_two_commits_are_compared_by_name(tree: Tree) -> None:
    before = state(tree)
    tree.component("toolkit", COMPONENTS["toolkit"].replace("5.1", "5.2"))
    tree.image(HEAD + "components: {python: '*'}\n", "other")

    assert (
        diff.history_text(diff.history(before, state(tree), diff.names_at(before, state(tree), "*"), {}))
        == """\
small
  ~ toolkit 5.1 → 5.2

+ image other
"""
    )


def test_distribution_packages_that_moved_are_reported(tree: Tree) -> None:
    tree.component(
        "debian",
        """\
summary: D
build_packages: [gcc]
releases: [{version: "12", provides: {glibc: "2.36"}, base: {bootstrap: bookworm, packages: [libc6]}}]
""",
    )
    tree.image(HEAD + "components: {torch: '*'}\npackages: [vim]\n")
    packages = {"apt": "2", "libc6": "2.36-1", "vim": "9.0", "vim-runtime": "9.0", "gcc": "12.1"}
    needs = {"vim": "vim-runtime"}
    write_lock(tree, packages, needs)
    before = state(tree)
    write_lock(tree, packages, needs)
    assert diff.history(before, state(tree), diff.names_at(before, state(tree), "*"), {}).same == 1

    del packages["vim-runtime"]
    write_lock(
        tree, {**packages, "libc6": "2.36-2", "vim": "9.1", "xxd": "9.1", "gcc": "12.2"}, {"vim": "xxd"}
    )
    assert (
        diff.history_text(diff.history(before, state(tree), diff.names_at(before, state(tree), "*"), {}))
        == """\
small
  4 distribution packages differ; download size: 4 kB → 4 kB
      libc6 2.36-1 → 2.36-2
      vim 9.0 → 9.1
      - vim-runtime 9.0
      + xxd 9.1
  1 build-stage package differs; download size: 1 kB → 1 kB
      gcc 12.1 → 12.2
"""
    )


def test_a_renamed_image_is_compared_with_its_former_recipe(tree: Tree) -> None:
    for name in ("first", "second"):
        tree.image(HEAD, name)
    before = state(tree)
    for name in ("first", "second"):
        (tree.root / f"images/{name}.yaml").unlink()
    tree.image(f"{HEAD}renamed_from: first\n", "third")
    tree.image(f"{HEAD}renamed_from: [second]\nenvironment: {{A: b}}\n", "fourth")
    names = diff.names_at(before, state(tree), "*")
    assert diff.history_text(diff.history(before, state(tree), names, {})) == (
        "third, renamed from first\n\nfourth, renamed from second\n  + environment A b\n"
        "\n1 image with the same recipe and components\n"
    )


def test_changes_between_commits_name_packages_code_and_values(tree: Tree) -> None:
    project = ProjectSettings(tree.root, (tree.root,))
    lock = f"{{}}==1 --hash=sha256:{SHA}  # {{}}.whl 1\n"
    recipe = HEAD + "requirements: own.lock\ncode: {directory: src, entry_point: train.py}\n"
    recipes = (recipe, f"{recipe}environment: {{A: x}}\n")
    first, second = (
        commit(
            tree.root,
            {
                "images/small.yaml": text,
                "images/own.lock": lock.format(name, name),
                "images/src/train.py": name,
            },
        )
        for text, name in zip(recipes, ("six", "seven"), strict=True)
    )

    assert [*diff.changes_between(project, conflict_text, "small", first, second)] == [
        "Python package seven 1 added",
        "Python package six 1 removed",
        "environment A x added",
        "code /opt/ml/code/train.py changed",
    ]
    assert [*diff.changes_between(project, conflict_text, "small", first, first)] == []
    assert raised(UsageError, lambda: [*diff.changes_between(project, conflict_text, "other", first, second)])


def test_a_mistake_of_the_present_is_not_one_of_the_commit(tree: Tree) -> None:
    project = ProjectSettings(tree.root, (tree.root,))
    for command in (["init"], ["add", "."], ["commit", "-m", "one"]):
        options = ["-c", "user.name=x", "-c", "user.email=x@x.example"]
        subprocess.run(["git", *options, *command], cwd=tree.root, check=True, capture_output=True)
    tree.write("apt/bookworm.packages", "Package: vim\n")
    with pytest.raises(RecipeError, match="incomplete package in a lock"), past(project, "HEAD"):
        _ = read_locks([tree.root]).debs


def write_lock(tree: Tree, versions: Mapping[str, str], needs: Mapping[str, str]) -> None:
    packages = [
        {
            "Package": name,
            "Version": version,
            "Depends": needs.get(name, ""),
            "Filename": f"pool/{name}_{version}_amd64.deb",
            "Size": "1000",
            "SHA256": f"{len(name) + len(version):064x}",
        }
        for name, version in versions.items()
    ]
    tree.write("apt/bookworm.packages", written(packages))


def test_unknown_images_are_reported(tree: Tree) -> None:
    [diagnostic] = raised(UsageError, diff.names_at, state(tree), state(tree), "smal").diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "image `smal` does not exist at either commit",
        "did you mean `small`?",
    )


def test_everything_that_a_recipe_says_is_compared(tree: Tree) -> None:
    for name, text in {"a.txt": "1", "b.sh": "2", "src/train.py": "3", "src/other.py": "4"}.items():
        tree.write(f"images/{name}", text)
    tree.write("images/requirements.txt", "pandas>=2\nsix\n")
    tree.write("images/requirements.txt.lock", f"{locked_heading(REQUIREMENTS, 'small')}\n")
    tree.image(HEAD + FIRST)
    before = tree.resolve()
    tree.write("images/a.txt", "new")
    tree.write("images/src/train.py", "new")
    tree.write("images/later.txt", "pandas>=3\nseven\n")
    tree.write("images/later.txt.lock", f"{locked_heading(CHANGED, 'small', name='later.txt')}\n")
    tree.image(HEAD + SECOND)

    expected = """\
  ~ components torch any → >=2.0
  ~ environment A 1 → 2
  - environment B x
  + environment C y
  - packages jq
  ~ packages vim any → 9
  + packages curl
  - run echo old
  + run echo new
  + required components
  ~ files /a.txt sha256:6b86b273ff34 → sha256:11507a0e2f5e
  - files /b.sh sha256:d4735e3a265e
  ~ code /opt/ml/code/train.py sha256:4e07408562be → sha256:11507a0e2f5e
  ~ requirements pandas >=2 → >=3
  - requirements six any
  + requirements seven any
  + purpose cpu
  ~ code.entry_point train.py → other.py
"""
    assert diff.compare(before, tree.resolve()) == expected


def test_another_order_of_steps_is_a_difference(tree: Tree) -> None:
    first = 'components: {torch: "*"}\nrun: [echo a, echo b]\n'
    second = 'components: {torch: "*"}\nrun: [echo b, echo a]\n'

    assert compared(tree, first, second) == "  ~ run one order → another order\n"


def test_the_user_s_smoke_test_is_compared(tree: Tree) -> None:
    first = "smoke: {entry_point: train.py, channels: {training: ../data}, hyperparameters: {epochs: 1}}\n"
    second = "smoke: {entry_point: train.py, hosts: 2, channels: {training: ../more}}\n"
    components = 'components: {torch: "*"}\n'

    assert compared(tree, components + first, components + second) == (
        "  ~ smoke hosts 1 → 2\n  - smoke hyperparameters.epochs 1\n"
        "  ~ smoke channels.training ../data → ../more\n"
    )
