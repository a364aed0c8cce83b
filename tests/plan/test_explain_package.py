"""Explanations of Python and distribution packages of an image."""

import pytest

from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.plan.explain_package import explain_package, package_names, report
from tests.support.locked_debian import PACKAGES, index
from tests.support.requirements_locks import locked_heading
from tests.support.trees import Tree

SHA = "a" * 64
FRAMEWORK = f"""\
summary: A framework
releases:
  - version: "2.0"
    requires: {{python: "*"}}
    packages: [gcc]
    build_packages: [cmake]
    requirements: ["fast-numbers>=1"]
    lock: lock.txt
    artifacts:
      wheel: {{url: "https://x.example/framework-2.0%2Bcpu-py3-none-any.whl", sha256: {SHA}}}
"""
RECIPE = """\
summary: Mine
base: {debian: "12"}
components: {framework: "*"}
packages:
  - jq
requirements: requirements.txt
"""
REQUIREMENTS = b"# tables\ntables>=1  # comment\n"


@pytest.fixture
def locked(tree: Tree) -> Tree:
    debs = {**PACKAGES, "jq": {"Depends": "libjq1"}, "libjq1": {"Depends": "libc6"}, "cmake": {}}
    tree.write("apt/bookworm.packages", index(debs))
    tree.component("framework", FRAMEWORK)
    tree.write("components/framework/lock.txt", line("fast-numbers") + line("helper"))
    tree.write("images/requirements.txt", REQUIREMENTS.decode())
    heading = locked_heading(REQUIREMENTS, "small")
    tree.write("images/requirements.txt.lock", f"{heading}\n{line('tables')}{line('pytz')}{line('helper')}")
    tree.image(RECIPE)
    return tree


def line(name: str) -> str:
    return f"{name}==1.0 --hash=sha256:{SHA}  # {name}.whl 1\n"


def lines(tree: Tree, name: str) -> list[str]:
    """Return the lines of the report, with the file and line of each location."""
    resolution, locks = tree.resolve(), read_locks([tree.root])
    return [
        f"{text} @{location.path.name}:{location.line}" if location else text
        for text, location in report(explain_package(resolution, locks, name))
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "Fast_Numbers",
            [
                "Fast_Numbers 1.0, a Python package",
                "  framework 2.0 installs 1.0 @lock.txt:1",
                "  `fast-numbers>=1` requests it @component.yaml:8",
            ],
        ),
        (
            "helper",
            [
                "helper 1.0, a Python package",
                "  framework 2.0 installs 1.0 @lock.txt:2",
                "  a dependency of `fast-numbers>=1` @component.yaml:8",
                "  the recipe also locks 1.0 @requirements.txt.lock:4",
                "  a dependency of `tables>=1` @requirements.txt:1",
            ],
        ),
        (
            "framework",
            ["framework 2.0+cpu, a Python package", "  framework 2.0 installs its wheel @component.yaml:10"],
        ),
        (
            "tables",
            [
                "tables 1.0, a Python package",
                "  the recipe installs 1.0 @requirements.txt.lock:2",
                "  `tables>=1` requests it @requirements.txt:2",
            ],
        ),
        (
            "pytz",
            [
                "pytz 1.0, a Python package",
                "  the recipe installs 1.0 @requirements.txt.lock:3",
                "  a dependency of `tables>=1` @requirements.txt:1",
            ],
        ),
        ("jq", ["jq 1.0, a distribution package", "  the recipe names it in `packages`: jq @small.yaml:5"]),
        (
            "libjq1",
            ["libjq1 1.0, a distribution package", "  the recipe needs it: jq → libjq1 @small.yaml:5"],
        ),
        ("gcc", ["gcc 1.0, a distribution package", "  framework 2.0 needs it to run @component.yaml:3"]),
        (
            "cpp-12",
            [
                "cpp-12 12.2, a distribution package",
                "  framework 2.0 needs it: gcc → gcc-12 → cpp-12 @component.yaml:3",
            ],
        ),
        (
            "openssl",
            [
                "openssl 1.0, a distribution package",
                "  debian 12 contains it, a dependency: ca-certificates → openssl @component.yaml:1",
            ],
        ),
        (
            "dpkg",
            [
                "dpkg 1.0, a distribution package",
                "  debian 12 contains it: every installation of Debian needs it @component.yaml:1",
            ],
        ),
        (
            "cmake",
            [
                "cmake 1.0, a distribution package, only in build stages",
                "  the build of framework installs it @component.yaml:1",
            ],
        ),
        ("nosuch", []),
    ],
)
def test_a_package_is_traced_to_its_request(locked: Tree, name: str, expected: list[str]) -> None:
    assert lines(locked, name) == expected


def test_without_a_lock_only_requests_are_known(locked: Tree) -> None:
    (locked.root / "apt/bookworm.packages").unlink()

    assert lines(locked, "jq") == [
        "jq, a distribution package",
        "  the recipe names it in `packages`: jq @small.yaml:5",
        "  no version is locked: it comes from the mirrors of the base on the day of the build",
    ]
    assert lines(locked, "libjq1") == []


def test_all_names_are_known(locked: Tree) -> None:
    names = package_names(locked.resolve(), read_locks([locked.root]))

    assert {"fast-numbers", "tables", "jq", "libjq1", "cmake", "dpkg"} <= {*names}


def test_a_requirement_of_an_included_file_is_named_at_its_line(locked: Tree) -> None:
    text = "-r more.txt\n"
    locked.write("images/more.txt", "\ntables\n")
    locked.write("images/requirements.txt", text)
    heading = locked_heading(locked.root / "images/requirements.txt", "small")
    locked.write("images/requirements.txt.lock", f"{heading}\n{line('tables')}")

    assert lines(locked, "tables")[2] == "  `tables` requests it @more.txt:2"
