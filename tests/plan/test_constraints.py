"""Constraints of images: the versions that installations at the start of a job keep."""

import pytest

from bakehouse.catalog.base_contents import BaseContents
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.plan.planner import constraints
from tests.support.data import text_of
from tests.support.trees import IMAGE, SHA, TEMPLATE, Tree

TORCH = text_of(__file__, "torch")
VISION = """\
summary: Image operators
stage_order: 41
upstream: {pypi: [vision]}
releases:
  - {version: "0.25.0", requires: {torch: ">=2.10"}}
  - {version: "0.24.1", requires: {torch: "==2.9.*"}}
"""


def locked(name: str, version: str) -> str:
    return f"{name}=={version} --hash=sha256:{SHA}  # {name}-{version}-py3-none-any.whl 5\n"


@pytest.fixture
def torch(tree: Tree) -> Tree:
    """A project whose image has a build of PyTorch with a local version, and NumPy."""
    packages = (("numpy", "2.4.6"), ("pip", "26.3"), ("setuptools", "84.2.1"))
    tree.component("torch", TORCH, TEMPLATE.format(name="torch") + "{# packages( #}")
    tree.write(
        "components/torch/locks/cpu.txt", "# Python 3.11: numpy\n" + "".join(locked(*p) for p in packages)
    )
    tree.component("vision", VISION)
    tree.image(IMAGE + "exclude: [vision]\n")
    return tree


def test_packages_of_components_are_kept_but_not_build_tools(torch: Tree) -> None:
    assert torch.planned_image().constraints == ("numpy==2.4.6", "torch==2.9.0+cpu", "vision==0.24.1+cpu")


def test_an_absent_companion_is_not_constrained_without_a_local_version(torch: Tree) -> None:
    torch.component("torch", TORCH.replace("%2Bcpu", ""), TEMPLATE.format(name="torch"))

    assert torch.planned_image().constraints == ("numpy==2.4.6", "torch==2.9.0")


def test_a_recipe_can_switch_constraints_off(torch: Tree) -> None:
    torch.image(IMAGE + "exclude: [vision]\nconstraints: false\n")

    assert torch.planned_image().constraints == ()
    assert "PIP_CONSTRAINT" not in torch.dockerfile()


def test_the_switch_is_a_flag(torch: Tree) -> None:
    torch.image(IMAGE + "constraints: some\n")

    assert "`constraints` must be `true` or `false`" in torch.mistakes()


def test_both_installers_read_the_file(torch: Tree) -> None:
    dockerfile = torch.dockerfile()

    assert 'ENV PIP_CONSTRAINT="/etc/bakehouse/constraints.txt"' in dockerfile
    assert 'UV_CONSTRAINT="/etc/bakehouse/constraints.txt"' in dockerfile
    assert "COPY --link --from=constraints /out/ /" in dockerfile


def test_a_package_of_a_recorded_base_is_kept_unless_a_component_replaces_it(vendor: Tree) -> None:
    record = BaseContents(
        tuple(Package(name, "1.0", "", "", 0, Location(vendor.root, 1, 1)) for name in ("torch", "six"))
    )
    asked = []

    def contents(digest: str) -> BaseContents:
        asked.append(digest)
        return record

    lines = constraints(vendor.resolve(), contents)

    assert lines == ("six==1.0", "torch==2.9.0+cpu")
    assert asked == [f"sha256:{SHA}"]


@pytest.fixture
def vendor(tree: Tree) -> Tree:
    """A project whose image extends a base of a registry."""
    tree.component(
        "debian",
        f"""\
summary: A base of a vendor
stage_order: 0
releases:
  - version: "12"
    base: {{image: "registry.example.com/base:1", digest: "sha256:{SHA}"}}
    provides: {{glibc: "2.36", debian: "12"}}
""",
    )
    text = TORCH.replace("lock: locks/cpu.txt", "").replace('recommends: {vision: "*"}', "")
    tree.component("torch", text, TEMPLATE.format(name="torch"))
    return tree


def test_constraints_of_a_base_still_apply(vendor: Tree) -> None:
    assert (
        'ENV PIP_CONSTRAINT="/etc/bakehouse/constraints.txt${PIP_CONSTRAINT:+ $PIP_CONSTRAINT}"'
        in vendor.dockerfile()
    )


def test_an_unknown_base_adds_no_lines(vendor: Tree) -> None:
    assert vendor.planned_image().constraints == ("torch==2.9.0+cpu",)
