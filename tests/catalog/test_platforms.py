"""Platforms of recipes, components and instance types."""

from bakehouse.catalog.component import Variant
from bakehouse.errors import Diagnostic, RecipeError
from tests.support.errors import raised
from tests.support.trees import COMPONENTS, Tree

HEAD = "summary: A small image\nbase: debian\n"
BOTH = "platforms: [linux/amd64, linux/arm64]\n"
INSTANCE = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - name: ml.c5.xlarge
      - name: ml.c7g.xlarge
        platforms: [linux/arm64]
"""


def refusals(tree: Tree, text: str) -> list[tuple[str, str]]:
    tree.image(HEAD + text)
    return [(each.message, each.hint) for each in raised(RecipeError, tree.recipes).diagnostics]


def mistakes(tree: Tree, component: str) -> tuple[Diagnostic, ...]:
    tree.component("tool", component)
    return raised(RecipeError, tree.catalog).diagnostics


def builds(tree: Tree, component: str) -> list[tuple[str, str]]:
    tree.component("tool", component)
    [release] = tree.catalog().components["tool"].releases
    return [(variant.name, variant.platform) for variant in release.variants]


def build(tree: Tree, name: str, component: str) -> Variant:
    tree.component("tool", component)
    [release] = tree.catalog().components["tool"].releases
    return next(variant for variant in release.variants if variant.name == name)


def test_a_recipe_for_two_platforms_is_two_images(tree: Tree) -> None:
    tree.image(HEAD + BOTH)

    images = {name: recipe.platform for name, recipe in tree.recipes().items()}

    assert images == {"small": "linux/amd64", "small-arm64": "linux/arm64"}


def test_the_order_of_platforms_does_not_matter(tree: Tree) -> None:
    tree.image(f"{HEAD}platforms: [linux/arm64, linux/amd64]\n")
    assert [*tree.recipes()] == ["small", "small-arm64"]


def test_an_image_for_one_platform_keeps_its_name(tree: Tree) -> None:
    tree.image(f"{HEAD}platforms: [linux/arm64]\n")

    assert {name: recipe.platform for name, recipe in tree.recipes().items()} == {"small": "linux/arm64"}


def test_each_platform_has_a_lock_of_the_requirements(tree: Tree) -> None:
    tree.write("images/needs.lock", f"six==1.0 --hash=sha256:{'0' * 64}  # six-1.0.tar.gz 1\n")
    tree.write("images/needs-arm64.lock", f"six==2.0 --hash=sha256:{'1' * 64}  # six-2.0.tar.gz 1\n")
    tree.image(f"{HEAD}{BOTH}requirements: needs.lock\n")

    versions = {
        name: [each.version for each in recipe.content.packages] for name, recipe in tree.recipes().items()
    }

    assert versions == {"small": ["1.0"], "small-arm64": ["2.0"]}


def test_an_unknown_platform_is_refused(tree: Tree) -> None:
    assert refusals(tree, "platforms: [linux/arm]\n") == [
        ("`linux/arm` is not a platform of images", "did you mean `linux/arm64`?")
    ]
    assert refusals(tree, "platforms: [windows]\n") == [
        ("`windows` is not a platform of images", "use one of `linux/amd64`, `linux/arm64`")
    ]


def test_an_empty_list_of_platforms_is_refused(tree: Tree) -> None:
    assert refusals(tree, "platforms: []\n") == [("`platforms` is empty", "remove it, or name a platform")]


def test_a_component_is_for_the_default_platform(tree: Tree) -> None:
    assert builds(tree, 'summary: x\nreleases: [{version: "1"}]\n') == [("", "linux/amd64")]


def test_a_component_for_two_platforms_has_two_builds(tree: Tree) -> None:
    assert builds(tree, f'summary: x\n{BOTH}releases: [{{version: "1"}}]\n') == [
        ("", "linux/amd64"),
        ("arm64", "linux/arm64"),
    ]


def test_a_variant_decides_for_itself(tree: Tree) -> None:
    component = f"""\
summary: x
{BOTH}releases:
  - version: "1"
    variants:
      - name: cpu
      - {{name: cuda, platforms: [linux/amd64]}}
      - {{name: grace, platforms: [linux/arm64]}}
"""
    assert builds(tree, component) == [
        ("cpu", "linux/amd64"),
        ("cpu-arm64", "linux/arm64"),
        ("cuda", "linux/amd64"),
        ("grace", "linux/arm64"),
    ]


def test_the_build_for_another_platform_has_a_lock_of_its_own(tree: Tree) -> None:
    tree.write("components/tool/locks/1.txt", "")
    component = f'summary: x\n{BOTH}releases: [{{version: "1", lock: locks/1.txt}}]\n'

    locks = [build(tree, name, component).spec.lock for name in ("", "arm64")]

    assert [(lock.path.name, lock.platform) for lock in locks if lock] == [
        ("1.txt", "linux/amd64"),
        ("1-arm64.txt", "linux/arm64"),
    ]


def test_the_heading_of_a_lock_names_another_platform(tree: Tree) -> None:
    component = f"""\
summary: x
{BOTH}releases:
  - {{version: "1", requires: {{python: "3.11"}}, requirements: [six], lock: locks/1.txt}}
"""
    headings = [build(tree, name, component).spec.lock for name in ("", "arm64")]

    assert [lock.heading("3.11") for lock in headings if lock] == [
        "# Python 3.11: six",
        "# Python 3.11 on linux/arm64: six",
    ]


def test_an_unknown_platform_of_a_component_is_refused(tree: Tree) -> None:
    [mistake] = mistakes(tree, 'summary: x\nplatforms: [arm64]\nreleases: [{version: "1"}]\n')
    assert mistake.message == "`arm64` is not a platform of images"


def test_a_glob_of_variants_needs_no_architecture(tree: Tree) -> None:
    variant = build(
        tree,
        "cpu-py311-arm64",
        f'summary: x\n{BOTH}releases: [{{version: "1", variants: [{{name: cpu-py311}}]}}]\n',
    )
    assert [glob for glob in ("cpu-py311", "cpu-*", "*-arm64", "cpu") if variant.matches(glob)] == [
        "cpu-py311",
        "cpu-*",
        "*-arm64",
    ]


def test_an_instance_type_of_another_platform_is_refused(tree: Tree) -> None:
    tree.component("instance", INSTANCE)

    assert refusals(tree, "targets: {instances: [ml.c7g.xlarge]}\n") == [
        (
            "instance type `ml.c7g.xlarge` is linux/arm64, but the recipe is for linux/amd64",
            "set `platforms: [linux/amd64, linux/arm64]` in the recipe",
        )
    ]
    assert refusals(tree, "platforms: [linux/arm64]\ntargets: {instances: [ml.c5.xlarge]}\n") == [
        (
            "instance type `ml.c5.xlarge` is linux/amd64, but the recipe is for linux/arm64",
            "set `platforms: [linux/amd64, linux/arm64]` in the recipe",
        )
    ]


def test_each_image_targets_the_instance_types_of_its_platform(tree: Tree) -> None:
    tree.component("instance", INSTANCE)
    debian = COMPONENTS["debian"].replace("releases:\n", f"{BOTH}releases:\n", 1)
    tree.component("debian", debian)
    tree.image(f"{HEAD}{BOTH}targets: {{instances: [ml.c*]}}\n")

    targets = {
        name: [target.variant.name for target in tree.resolve(name).targets]
        for name in ("small", "small-arm64")
    }

    assert targets == {"small": ["ml.c5.xlarge"], "small-arm64": ["ml.c7g.xlarge"]}
