"""Differences between two resolutions and between two commits."""

import pytest

from bakehouse.catalog.requirements_file import lock_heading
from bakehouse.errors import UsageError
from bakehouse.resolve import diff
from tests.conftest import COMPONENTS, SHA, Tree

HEAD = "summary: x\nbase: debian\n"
REQUIREMENTS, CHANGED = b"pandas>=2\nsix\n", b"pandas>=3\nseven\n"
FIRST = """\
components: {torch: "*"}
environment: {A: "1", B: x}
apt: [vim, jq]
run: [echo old]
files: [{from: a.txt, to: /a.txt}, {from: b.sh, to: /b.sh}]
code: {directory: src, entry_point: train.py}
requirements: requirements.txt
"""
SECOND = """\
components: {torch: ">=2.0"}
environment: {A: "2", C: y}
apt: [vim=9, curl]
run: [echo new]
files: [{from: a.txt, to: /a.txt}]
code: {directory: src, entry_point: other.py}
requirements: later.txt
required: [components]
status: legacy
"""


def compared(tree: Tree, first: str, second: str) -> str:
    tree.image(HEAD + first)
    before = tree.resolve()
    tree.image(HEAD + second)
    return diff.compare(before, tree.resolve())


def test_parts_that_came_went_and_changed_are_reported(tree: Tree) -> None:
    text = compared(tree, 'components: {torch: "*", toolkit: "*"}\n', 'components: {torch: "2.8.0"}\n')

    assert (
        text
        == """\
  ~ python 3.11 → 3.12
  ~ torch 2.9.0 (cpu-py311) → 2.8.0
  - toolkit 5.1
"""
    )


def test_what_a_component_provides_is_reported_where_its_version_is_the_same(tree: Tree) -> None:
    text = compared(
        tree,
        'components: {torch: "2.9.0"}\nvariants: {torch: "cpu*"}\n',
        'components: {torch: "2.9.0"}\nvariants: {torch: "cu*"}\n',
    )

    assert (
        text
        == """\
  ~ torch 2.9.0 (cpu-py311) → 2.9.0 (cu128-py311)
      provides cuda none → 12.8
"""
    )


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

    assert (
        text
        == """\
  ~ toolkit 1 → 2  1.0 MB → 3.0 MB of Python packages
  2 Python packages differ; download size: 1.0 MB → 3.0 MB
      numpy 3.1000000 → 3.3000000
      + six 1.17
"""
    )


def test_images_of_two_commits_are_compared_by_name(tree: Tree) -> None:
    before, old = tree.recipes(), tree.catalog()
    tree.component("toolkit", COMPONENTS["toolkit"].replace("5.1", "5.2"))
    tree.image(HEAD + "components: {python: '*'}\n", "other")

    assert (
        diff.history_text(diff.history(before, old, tree.recipes(), tree.catalog(), "*"))
        == """\
small
  ~ toolkit 5.1 → 5.2

+ image other
"""
    )


def test_unknown_images_are_reported(tree: Tree) -> None:
    with pytest.raises(UsageError) as caught:
        diff.history(tree.recipes(), tree.catalog(), tree.recipes(), tree.catalog(), "smal")

    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "there is no image `smal` at either commit",
        "did you mean `small`?",
    )


def test_everything_that_a_recipe_says_is_compared(tree: Tree) -> None:
    for name, text in {"a.txt": "1", "b.sh": "2", "src/train.py": "3", "src/other.py": "4"}.items():
        tree.write(f"images/{name}", text)
    tree.write("images/requirements.txt", "pandas>=2\nsix\n")
    tree.write("images/requirements.txt.lock", f"{lock_heading('requirements.txt', REQUIREMENTS)}\n")
    tree.image(HEAD + FIRST)
    before = tree.resolve()
    tree.write("images/a.txt", "new")
    tree.write("images/src/train.py", "new")
    tree.write("images/later.txt", "pandas>=3\nseven\n")
    tree.write("images/later.txt.lock", f"{lock_heading('later.txt', CHANGED)}\n")
    tree.image(HEAD + SECOND)

    assert (
        diff.compare(before, tree.resolve())
        == """\
  ~ components torch any → >=2.0
  ~ environment A 1 → 2
  - environment B x
  + environment C y
  - apt jq
  ~ apt vim any → 9
  + apt curl
  - run echo old
  + run echo new
  + required components
  ~ files /a.txt sha256:6b86b273ff34 → sha256:11507a0e2f5e
  - files /b.sh sha256:d4735e3a265e
  ~ code /opt/ml/code/train.py sha256:4e07408562be → sha256:11507a0e2f5e
  ~ requirements pandas >=2 → >=3
  - requirements six any
  + requirements seven any
  ~ status current → legacy
  ~ code.entry_point train.py → other.py
"""
    )


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
