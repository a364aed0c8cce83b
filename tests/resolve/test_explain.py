"""Words for what was chosen: who asked, what kept newer versions out, and what would let them in."""

import re

from bakehouse.resolve import explain
from tests.support.trees import Tree

HEAD = 'summary: A small image\nbase: {debian: "12"}\n'


def overview(tree: Tree) -> str:
    resolution = tree.resolve()
    return explain.overview(resolution, explain.explain_all(resolution, tree.catalog()))


def part(tree: Tree, name: str) -> str:
    resolution = tree.resolve()
    return explain.name_report(resolution, explain.explain_name(resolution, tree.catalog(), name))


def texts(report: str) -> list[str]:
    """Return the lines without their locations."""
    return [re.sub(r"   +(images|components)/.*", "", line) for line in report.splitlines()]


def test_each_component_is_reported_with_who_asked_and_what_kept_newer_ones_out(tree: Tree) -> None:
    tree.image(HEAD + 'components: {torch: ">=2.9", toolkit: "*"}\nvariants: {torch: "cu*"}\n')

    assert texts(overview(tree))[2:-2] == [
        "debian 12, the newest known: the image requests 12",
        "  provides glibc 2.36",
        "python 3.11",
        "  torch 2.9.0 (cu128-py311) is built for 3.11, which excludes 3.12",
        "  3.12 is possible with torch >=2.9 → 2.8.0, without variant cu* of torch",
        "torch 2.9.0 (cu128-py311), the newest known: the image requests >=2.9",
        "  provides cuda 12.8",
        "toolkit 5.1, the newest known: the image requests it",
    ]


def test_what_one_change_would_give_is_reported(tree: Tree) -> None:
    tree.image(HEAD + 'components: {torch: "*", python: "3.12"}\n')

    expected = """\
small

debian 12, the newest known: the image requests 12       images/small.yaml:2
  provides glibc 2.36
python 3.12, the newest known: the image requests 3.12   images/small.yaml:3
torch 2.8.0
  the image requests it                                  images/small.yaml:3
  not 2.9.0: is built for python 3.11, not 3.12          components/torch/component.yaml:9
    the image requests python 3.12                       images/small.yaml:3
  2.9.0 is possible with python 3.12 → 3.11              images/small.yaml:3

run `bake explain small torch` for all details of one component
"""
    assert overview(tree) == expected


def test_a_newer_version_that_fits_is_reported_without_a_change_of_itself(tree: Tree) -> None:
    tree.image(HEAD + 'components: {torch: "2.8.0", python: "3.11"}\n')

    assert part(tree, "torch").splitlines()[-1].split("   ")[0] == "  2.9.0 fits if the image requests it"


MPI = """\
summary: MPI
releases:
""" + "".join(
    f'  - {{version: "{version}", source: https://mpi.example}}\n' for version in ("5.1", "5.0", "4.1")
)


def test_the_newest_release_that_fits_is_offered(tree: Tree) -> None:
    tree.component("mpi", MPI)
    tree.image(HEAD + 'components: {mpi: "4.1"}\n')

    expected = """\
mpi 4.1, the newest known is 5.1                    components/mpi/component.yaml:5
  the image requests 4.1, which excludes 5.1, 5.0   images/small.yaml:3

  5.1 fits if the image requests it                 images/small.yaml:3
"""
    assert part(tree, "mpi") == expected
    assert "  5.1 fits if the image requests it " in overview(tree)


def test_a_release_with_a_known_problem_is_offered_only_if_no_other_fits(tree: Tree) -> None:
    problem = "{with: {debian: '12'}, severity: warning, reason: it hangs, source: https://mpi.example}"
    tree.component("mpi", MPI.replace("example}", f"example, conflicts: [{problem}]}}", 1))
    tree.image(HEAD + 'components: {mpi: "4.1"}\n')

    assert texts(part(tree, "mpi"))[-2:] == [
        "  5.0 fits if the image requests it",
        "  5.1 fits if the image requests it, but has a known problem",
    ]


def test_one_component_is_reported_with_every_demand(tree: Tree) -> None:
    tree.image(HEAD + 'components: {torch: "*", python: "3.12"}\n')

    expected = """\
torch 2.8.0, the newest known is 2.9.0            components/torch/component.yaml:14
  the image requests it                           images/small.yaml:3
  not 2.9.0: is built for python 3.11, not 3.12   components/torch/component.yaml:9
    the image requests python 3.12                images/small.yaml:3

  2.9.0 is possible with python 3.12 → 3.11       images/small.yaml:3
"""
    assert part(tree, "torch") == expected


def test_what_a_component_provides_can_be_asked_about(tree: Tree) -> None:
    expected = """\
glibc 2.36, provided by debian 12              components/debian/component.yaml:4
debian 12, the newest known                    components/debian/component.yaml:4
  the image requests 12                        images/small.yaml:2
  torch 2.9.0 (cpu-py311) needs glibc >=2.28   components/torch/component.yaml:6

2.36 is the newest glibc in the catalogue
"""
    assert part(tree, "glibc") == expected
    assert explain.explainable_names(tree.resolve()) == ("debian", "glibc", "python", "toolkit", "torch")


def test_each_way_to_a_newer_version_is_reported_with_its_changes(tree: Tree) -> None:
    tree.image(HEAD + 'components: {torch: "2.8.0", python: "3.12"}\n')

    expected = """\
torch 2.8.0, the newest known is 2.9.0                             components/torch/component.yaml:14
  the image requests 2.8.0, which excludes 2.9.0                   images/small.yaml:3

  2.9.0 is possible with python 3.12 → 3.11, torch 2.8.0 → 2.9.0   images/small.yaml:3
"""
    assert part(tree, "torch") == expected


def test_limits_are_reported_and_what_newer_versions_would_have_led_to(tree: Tree) -> None:
    tree.component(
        "torch",
        """\
summary: PyTorch
releases:
  - {version: "3.0", requires: {nccl: ">=3"}}
  - {version: "2.9", requires: {glibc: ">=2.39"}}
  - {version: "2.8", constraints: {glibc: "<3"}}
""",
    )
    tree.component("nccl", 'summary: NCCL\nreleases: [{version: "2.29"}]\n')
    tree.image(HEAD + 'components: {torch: "*"}\n')

    assert "  torch 2.8 works with glibc <3   components/torch/component.yaml:5\n" in part(tree, "debian")
    assert texts(overview(tree))[4:-2] == [
        "torch 2.8",
        "  the image requests it",
        "  not 3.0: needs nccl >=3, but the catalogue has only nccl 2.29",
        "  not 2.9: needs glibc >=2.39, not 2.36",
        "    debian 12 provides glibc 2.36",
        "  3.0 fits no base in the catalogue: nccl 2.29 does not match >=3",
    ]


def test_a_variant_that_a_newer_release_does_not_have_is_reported(tree: Tree) -> None:
    tree.component(
        "torch",
        """\
summary: PyTorch
releases:
  - {version: "3.0", variants: [{name: cu130}]}
  - {version: "2.9", variants: [{name: cu128}]}
""",
    )
    tree.image(HEAD + 'components: {torch: "*"}\nvariants: {torch: "cu128*"}\n')

    expected = """\
small

debian 12, the newest known: the image requests 12       images/small.yaml:2
  provides glibc 2.36
torch 2.9 (cu128)
  the image requests it                                  images/small.yaml:3
  not 3.0: no variant cu128*                             images/small.yaml:4
  3.0 is possible with variant cu128* of torch → cu130   images/small.yaml:4

run `bake explain small torch` for all details of one component
"""
    assert overview(tree) == expected
