"""Words for what could not be chosen; most conflicts are in `mistakes`."""

from tests.support.trees import COMPONENTS, Tree

HEAD = 'summary: A small image\nbase: {debian: "12"}\n'


def test_irrelevant_facts_are_not_reported(tree: Tree) -> None:
    """The image pins five things; two of them do not go together."""
    tree.component("jit", 'summary: Compilers\nreleases: [{version: "12"}]\n')
    tree.image(HEAD + 'components: {jit: "12", toolkit: "5.1", python: "3.12", torch: "2.9.0"}\n')

    expected = """\
error: no versions satisfy image `small` on linux/amd64
  --> images/small.yaml:3:64
   |
 3 | components: {jit: "12", toolkit: "5.1", python: "3.12", torch: "2.9.0"}
   |                                                                ^^^^^^^ requests torch 2.9.0
  because the image requests python 3.12               images/small.yaml:3:49
  and torch 2.9.0 is built for python 3.11, not 3.12   components/torch/component.yaml:9:28

hint: use `python: "3.11"`, or `torch: "2.8.0"`
"""
    assert tree.conflict() == expected


def test_the_way_from_the_image_to_the_conflict_is_reported(tree: Tree) -> None:
    tree.component("app", 'summary: App\nreleases: [{version: "1", requires: {layer: "*"}}]\n')
    tree.component("layer", 'summary: Layer\nreleases: [{version: "7", requires: {torch: "2.9.0"}}]\n')
    tree.image(HEAD + 'components: {app: "*", python: "3.12"}\n')

    expected = """\
error: no versions satisfy image `small` on linux/amd64
  --> images/small.yaml:3:19
   |
 3 | components: {app: "*", python: "3.12"}
   |                   ^^^ requests app
  because the image requests python 3.12               images/small.yaml:3:32
  and app 1 needs any layer                            components/app/component.yaml:2:45
  and layer 7 needs torch 2.9.0                        components/layer/component.yaml:2:45
  and torch 2.8.0 does not match 2.9.0                 components/torch/component.yaml:14:14
  and torch 2.9.0 is built for python 3.11, not 3.12   components/torch/component.yaml:9:28

hint: use `python: "3.11"`
"""
    assert tree.conflict() == expected


def test_many_versions_are_counted(tree: Tree) -> None:
    releases = "".join(f'  - version: "1.{number}"\n' for number in range(20))
    tree.component("torch", f"summary: PyTorch\nreleases:\n{releases}")
    tree.image(HEAD + 'components: {torch: ">=2"}\n')

    assert "  because the catalogue has torch 1.19, 1.18, 1.17 and 17 older " in tree.conflict()


def test_versions_that_fail_for_the_same_reason_share_a_line(tree: Tree) -> None:
    releases = "".join(
        f'  - {{version: "1.{number}", requires: {{glibc: ">=2.39"}}}}\n' for number in range(3)
    )
    tree.component("torch", f"summary: PyTorch\nreleases:\n{releases}")
    tree.image(HEAD + 'components: {torch: "*"}\n')

    text = tree.conflict()

    assert "  and torch 1.2, 1.1, 1.0 need glibc >=2.39, not 2.36 " in text
    assert "  and debian 12 provides glibc 2.36 " in text


def test_another_base_may_be_the_way_out(tree: Tree) -> None:
    tree.component(
        "debian",
        COMPONENTS["debian"]
        + """\
  - version: "13"
    base: {bootstrap: trixie}
    provides: {glibc: "2.41"}
""",
    )
    tree.component("torch", 'summary: PyTorch\nreleases: [{version: "3", requires: {glibc: ">=2.39"}}]\n')
    tree.image(HEAD + 'components: {torch: "*"}\n')

    assert tree.conflict().endswith('\nhint: use `base: {debian: "13"}`\n')


def test_a_component_that_provides_a_wrong_version_is_reported_with_who_needs_another(tree: Tree) -> None:
    tree.component(
        "rmm", 'summary: RMM\nstage_order: 60\nreleases: [{version: "26", requires: {cuda: "13"}}]\n'
    )
    tree.image(HEAD + 'components: {torch: "*", rmm: "*", python: "3.11"}\nvariants: {torch: "cu*"}\n')

    expected = """\
error: no versions satisfy image `small` on linux/amd64
  --> images/small.yaml:3:31
   |
 3 | components: {torch: "*", rmm: "*", python: "3.11"}
   |                               ^^^ requests rmm
  because rmm 26 needs cuda 13                       components/rmm/component.yaml:3:45
  and torch 2.9.0 (cu128-py311) provides cuda 12.8   components/torch/component.yaml:10:15

hint: leave out `rmm`
"""
    assert tree.conflict() == expected
