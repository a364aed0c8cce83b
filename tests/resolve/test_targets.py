"""Targets of images, and known incompatibilities."""

import pytest

from bakehouse.errors import RecipeError
from bakehouse.resolve.phrases import warnings_text
from tests.support.errors import raised
from tests.support.trees import IMAGE, Tree

INSTANCE = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - name: ml.p3.2xlarge
        provides: {gpu-architecture: "7.0"}
      - name: ml.p4d.24xlarge
        provides: {gpu-architecture: "8.0", efa-interfaces: "4"}
"""
TORCH = """\
summary: PyTorch
stage_order: 40
releases:
  - version: "2.9.0"
    constraints: {gpu-architecture: ">=7.5", driver: ">=580"}
  - version: "2.8.0"
    constraints: {gpu-architecture: ">=7.0", driver: ">=525.60.13"}
"""
CONFLICT = """\
    conflicts:
      - with: {python: ">=3.12"}
        reason: it hangs there
        source: https://example.org/1
        confidence: %s
"""


@pytest.fixture
def target_tree(tree: Tree) -> Tree:
    tree.component("instance", INSTANCE)
    tree.component("torch", TORCH)
    return tree


def image(targets: str, python: str = "3.11") -> str:
    return f'summary: x\nbase: debian\ncomponents: {{python: "{python}", torch: "*"}}\n{targets}'


def test_a_component_has_to_suit_the_instance_type(target_tree: Tree) -> None:
    target_tree.image(image("targets: {instances: [ml.p3.2xlarge]}\n"))

    assert target_tree.chosen()["torch"] == "2.8.0"


def test_a_component_has_to_suit_every_instance_type(target_tree: Tree) -> None:
    target_tree.image(image('targets: {instances: ["ml.p*"]}\n'))
    resolution = target_tree.resolve()

    assert resolution.version_of("torch") == "2.8.0"
    assert [target.variant.name for target in resolution.targets] == ["ml.p3.2xlarge", "ml.p4d.24xlarge"]


def test_without_targets_the_newest_is_taken(target_tree: Tree) -> None:
    target_tree.image(image(""))

    assert target_tree.chosen()["torch"] == "2.9.0"


@pytest.mark.parametrize(("driver", "torch"), [("580.65.06", "2.9.0"), ("550.163.01", "2.8.0")])
def test_a_component_has_to_suit_the_driver_of_the_host(target_tree: Tree, driver: str, torch: str) -> None:
    target_tree.image(image(f'targets: {{driver: "{driver}"}}\n'))

    assert target_tree.chosen()["torch"] == torch


def test_a_target_is_not_a_component_of_the_image(target_tree: Tree) -> None:
    target_tree.image(image('targets: {instances: [ml.p4d.24xlarge], driver: "580.1"}\n'))

    assert sorted(target_tree.chosen()) == ["debian", "python", "torch"]


def test_nothing_that_suits_is_a_conflict_with_both_places(target_tree: Tree) -> None:
    target_tree.image(image('targets: {driver: "470.1"}\n'))

    text = target_tree.conflict()

    assert "images/small.yaml:4:19" in text or "driver" in text


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("targets: {instances: [ml.p9]}\n", "unknown instance type `ml.p9`"),
        ("targets: {driver: new}\n", "`new` is not a driver version"),
        ("targets: {drivers: '5'}\n", "unknown key `drivers` in `targets`"),
        ("targets: [x]\n", "`targets` must be a mapping of names to values"),
    ],
)
def test_mistakes_in_targets_are_reported(target_tree: Tree, targets: str, message: str) -> None:
    target_tree.image(image(targets))

    error = raised(RecipeError, target_tree.recipes)

    assert [diagnostic.message for diagnostic in error.diagnostics] == [message]


@pytest.mark.parametrize("name", ["instance", "driver"])
def test_a_target_can_not_be_asked_for_as_a_part(target_tree: Tree, name: str) -> None:
    target_tree.image(image("").replace("torch:", f'{name}: "*", torch:'))

    with pytest.raises(RecipeError, match=f"unknown component `{name}`"):
        target_tree.recipes()


def test_parts_that_are_known_not_to_work_together_are_refused(target_tree: Tree) -> None:
    target_tree.component(
        "torch", TORCH.replace('  - version: "2.8.0"', CONFLICT % "high" + '  - version: "2.8.0"')
    )
    target_tree.image(image("", python="3.12"))

    assert target_tree.chosen()["torch"] == "2.8.0"


def test_the_other_component_may_come_later(target_tree: Tree) -> None:
    target_tree.component("torch", TORCH)
    with_torch = 'requires: {torch: "*"}\n    conflicts: [{with: {torch: ">=2.9"}, reason: x, source: y}]\n'
    target_tree.component(
        "toolkit", f'summary: T\nstage_order: 5\nreleases:\n  - version: "5"\n    {with_torch}'
    )
    target_tree.image('summary: x\nbase: debian\ncomponents: {toolkit: "*"}\n')

    assert target_tree.chosen()["torch"] == "2.8.0"


def test_a_severity_overrides_the_confidence(target_tree: Tree) -> None:
    known = CONFLICT % "high" + "        severity: warning\n"
    target_tree.component("torch", TORCH.replace('  - version: "2.8.0"', known + '  - version: "2.8.0"'))
    target_tree.image(image("", python="3.12"))
    resolution = target_tree.resolve()

    assert resolution.version_of("torch") == "2.9.0"
    assert [conflict.reason for _, conflict in resolution.warnings] == ["it hangs there"]


def test_one_report_alone_is_a_warning(target_tree: Tree) -> None:
    target_tree.component(
        "torch", TORCH.replace('  - version: "2.8.0"', CONFLICT % "low" + '  - version: "2.8.0"')
    )
    target_tree.image(image("", python="3.12"))
    resolution = target_tree.resolve()

    assert resolution.version_of("torch") == "2.9.0"
    assert [(str(candidate), conflict.reason) for candidate, conflict in resolution.warnings] == [
        ("torch 2.9.0", "it hangs there")
    ]


def test_a_conflict_needs_its_reason_and_its_source(target_tree: Tree) -> None:
    target_tree.component("torch", TORCH + "    conflicts: [{with: {pyton: '*'}}]\n")

    assert {diagnostic.message for diagnostic in raised(RecipeError, target_tree.catalog).diagnostics} == {
        "a conflict has no `reason`",
        "a conflict has no `source`",
        "`torch` conflicts with unknown component `pyton`",
    }


def test_the_small_image_has_no_targets(target_tree: Tree) -> None:
    target_tree.component("torch", 'summary: T\nreleases: [{version: "1", variants: [{name: cpu-1}]}]\n')
    target_tree.image(IMAGE)

    assert target_tree.resolve().targets == ()


def test_modules_of_another_python_are_reported(tree: Tree) -> None:
    def warnings(packages: str, components: str) -> str:
        tree.image(f'summary: x\nbase: {{debian: "12"}}\n{components}packages: [{packages}]\n')
        return warnings_text([tree.resolve()])

    python = 'components: {python: "*"}\n'
    text = "`python3-numpy` is for Debian's Python: the image's own Python cannot import it"
    assert warnings("python3-numpy, less", python) == f"warning: small: {text}\n"
    assert warnings("python3-dev, python3-venv, libpython3.11", python) == ""
    assert warnings("python3-numpy", "") == ""
