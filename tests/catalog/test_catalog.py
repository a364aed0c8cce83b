"""Components as their directories say."""

from pathlib import Path

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.component import Artifact, VariantSpec
from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import load_lock
from bakehouse.catalog.spec_reader import requirement
from bakehouse.errors import Problems, RecipeError
from bakehouse.util.yaml_reader import Scalar
from tests.support.errors import error_text
from tests.support.trees import COMPONENTS, SHA, Tree

LINE = "{}=={} --hash=sha256:" + SHA + "  # {} 1234\n"


def spec(tree: Tree, text: str) -> VariantSpec:
    """Return the specification of the first variant of a component `part`."""
    tree.component("part", text)
    return tree.catalog().components["part"].releases[0].variants[0].spec


def test_releases_are_newest_first_whatever_their_order(empty: Tree) -> None:
    versions = ["2.9.0", "2.10.0", "2.10.0rc1", "2.9.0.post1", "1!0.1"]
    releases = "".join(f'  - version: "{version}"\n' for version in versions)
    empty.component("part", f"summary: A part\nreleases:\n{releases}")
    parsed = empty.catalog().components["part"].releases

    assert [release.version for release in parsed] == ["1!0.1", "2.10.0", "2.10.0rc1", "2.9.0.post1", "2.9.0"]


def test_a_variant_says_more_than_its_release_and_that_more_than_the_component(empty: Tree) -> None:
    variant_spec = spec(
        empty,
        """\
summary: A part
requires: {part: "1"}
packages: [one]
environment: {A: component, B: component, C: component}
provides: {cuda: "1", nccl: "1"}
facts: {make: one}
entrypoint: [a]
artifacts:
  source: {url: "https://example.org/old.tgz", sha256: unknown}
releases:
  - version: "1"
    requires: {part: ">0"}
    packages: [two]
    environment: {B: release, C: release}
    gpu: true
    variants:
      - name: only
        packages: [three]
        environment: {C: variant}
        provides: {cuda: "2"}
        facts: {make: two}
        entrypoint: [b, c]
        artifacts:
          source: {url: "https://example.org/new.tgz", sha256: unknown}
""",
    )

    assert [(requirement.name, requirement.specifier) for requirement in variant_spec.requires] == [
        ("part", "==1.*"),
        ("part", ">0"),
    ]
    assert variant_spec.system_packages.names("apt") == ("one", "two", "three")
    assert variant_spec.environment == {"A": "component", "B": "release", "C": "variant"}
    assert variant_spec.provides == {"cuda": "2", "nccl": "1"}
    assert (variant_spec.facts, variant_spec.entrypoint, variant_spec.gpu) == (
        {"make": "two"},
        ("b", "c"),
        True,
    )
    assert [artifact.source for artifact in variant_spec.artifacts] == ["https://example.org/new.tgz"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("*", ""),
        ("3.11", "==3.11.*"),
        ("12", "==12.*"),
        ("2.9.1", "==2.9.1"),
        ("2.13.0+cpu", "==2.13.0+cpu"),
        (" >=2.9,<3 ", ">=2.9,<3"),
        ("~=2.9", "~=2.9"),
        ("!=2.9.0", "!=2.9.0"),
    ],
)
def test_a_bare_version_is_that_version_and_what_belongs_to_it(empty: Tree, written: str, meant: str) -> None:
    variant_spec = spec(
        empty, f'summary: A part\nreleases: [{{version: "1", constraints: {{part: "{written}"}}}}]\n'
    )

    assert variant_spec.constraints[0].specifier == meant


@pytest.mark.parametrize("written", ["2.9rc1", "1.0+cpu", ">= x", "==2.9 ==3", "=2.9", "latest", ">2 <3"])
def test_an_invalid_range_is_refused(written: str, empty: Tree) -> None:
    problems = Problems()
    empty.component("part", COMPONENTS["python"])
    location = empty.catalog().components["part"].location

    assert requirement(Scalar("part", location), Scalar(written, location), problems) is None
    assert problems


@pytest.mark.parametrize(
    ("specifier", "version", "holds"),
    [
        ("==3.11.*", "3.11.9", True),
        ("==3.11.*", "3.1", False),
        (">=2.28", "2.36", True),
        (">=2.9", "2.10.0", True),
        ("", "0.1rc1", True),
        (">=2.9", "2.10.0rc1", True),
        ("==2.13.0", "2.13.0+cpu", True),
    ],
)
def test_ranges_hold_as_for_python_packages_with_previews(
    empty: Tree, specifier: str, version: str, holds: bool
) -> None:
    text = f'summary: A part\nreleases: [{{version: "1", requires: {{part: "{specifier or "*"}"}}}}]\n'
    [requirement] = spec(empty, text).requires

    assert requirement.allows(version) is holds


def test_an_artifact_has_an_address_a_file_and_a_place_to_pin_it(empty: Tree) -> None:
    variant_spec = spec(
        empty,
        f"""\
summary: A part
releases:
  - version: "1"
    artifacts:
      wheel: {{url: "https://example.org/torch-2.13.0%2Bcpu-cp311.whl?x=1#frag", sha256: {SHA}}}
      source: {{debian: "metis=5.1.0.dfsg", file: metis_5.1.0.orig.tar.xz, sha256: unknown}}
      smp: {{pypi: "smp==1.7.0", file: smp-1.7.0.whl, sha256: unknown, notes: x, source: y, confidence: low}}
""",
    )
    wheel, source, smp = variant_spec.artifacts

    assert (wheel.kind, wheel.file, wheel.sha256) == ("url", "torch-2.13.0+cpu-cp311.whl", SHA)
    assert wheel.address == wheel.source == "https://example.org/torch-2.13.0%2Bcpu-cp311.whl?x=1#frag"
    assert (source.address, source.sha256) == ("debian:metis=5.1.0.dfsg", None)
    assert (smp.address, smp.sha256) == ("pypi:smp==1.7.0", None)
    assert unpinned(source) == "unknown"


def test_a_size_can_be_known_of_some_builds_and_has_its_place_in_each(empty: Tree) -> None:
    empty.component(
        "part",
        f"""\
summary: A part
releases:
  - version: "1"
    variants:
      - name: for-${{python}}
        matrix:
          build:
            - {{python: "1", sha256: {SHA}, bytes: 2861523148}}
            - {{python: "2", sha256: {SHA}, bytes: unknown}}
        artifacts:
          wheel: {{url: "https://example.org/a.whl", sha256: "${{sha256}}", bytes: "${{bytes}}"}}
          source: {{url: "https://example.org/a.tgz", sha256: "${{sha256}}"}}
          tools: {{url: "https://example.org/b.tgz", sha256: {SHA}}}
""",
    )
    first, two = (
        variant.spec.artifacts for variant in empty.catalog().components["part"].releases[0].variants
    )

    assert [artifact.bytes for artifact in first] == [2861523148, None, None]
    wheel, source, tools = two
    assert wheel.bytes is None
    assert wheel.size_location
    assert wheel.size_location.text[wheel.size_location.column - 1 :] == "unknown}"
    assert source.size_location is None
    assert tools.size_location == tools.location


def unpinned(artifact: Artifact) -> str:
    location = artifact.location
    return location.text[location.column - 1 :][: location.length]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a\\nRUN evil",
        "https://example.org/a b",
        "https://example.org/`id`",
        "file:///etc/passwd",
        "https://",
        "//example.org/a",
        "https://example.org/ä",
        'https://example.org/\\"',
        "https://example.org/<<EOF",
    ],
)
def test_an_address_with_unusual_signs_is_refused(url: str, empty: Tree) -> None:
    artifact = f'{{url: "{url}", file: f, sha256: unknown}}'
    text = f'summary: x\nreleases: [{{version: "1", artifacts: {{a: {artifact}}}}}]\n'
    with pytest.raises(RecipeError, match="is not a valid `url` of an artifact"):
        spec(empty, text)


def test_a_lock_names_the_one_file_of_each_package(tmp_path: Path, tree: Tree) -> None:
    lock = tree.write(
        "lock.txt",
        "# made by bake\n\n"
        + LINE.format("torch", "2.13.0", "torch-2.13.0.whl")
        + LINE.format("sm", "5", "sm-5.tar.gz"),
    )
    problems = Problems()
    torch, toolkit = load_lock(lock, tree.catalog().components["python"].location, problems)

    assert (torch.name, torch.version, torch.bytes, torch.is_sdist) == ("torch", "2.13.0", 1234, False)
    assert torch.requirement == f"torch==2.13.0 --hash=sha256:{SHA}"
    assert toolkit.is_sdist
    assert not problems


def test_a_lock_that_is_not_utf8_is_reported_when_it_is_needed(tree: Tree) -> None:
    tree.write("components/torch/lock.txt", b"\xff\xfe")
    tree.component("torch", 'summary: Torch\nreleases: [{version: "1", lock: lock.txt}]\n')
    [release] = tree.catalog().components["torch"].releases

    with pytest.raises(RecipeError) as caught:
        _ = release.variants[0].spec.packages

    assert (
        error_text(caught.value)
        == "error: `lock.txt` is not UTF-8 text\n  --> components/torch/lock.txt:1:1\n"
    )


def test_a_later_directory_replaces_a_component_whole(tmp_path: Path, tree: Tree) -> None:
    later = Tree(tmp_path / "later")
    later.component("torch", 'summary: Theirs\nreleases: [{version: "1"}]\n')
    components = load_catalog([tree.root, later.root]).components

    assert (components["torch"].summary, components["torch"].template, components["torch"].launchers) == (
        "Theirs",
        "",
        (),
    )
    assert components["python"].directory == tree.root / "components/python"


def test_a_component_with_mistakes_concerns_its_users_even_if_a_base_also_provides_it(empty: Tree) -> None:
    empty.component("toolkit", "summary: [\n")
    empty.component(
        "vendor",
        """\
summary: A base
stage_order: 0
releases:
  - version: "1"
    base: {bootstrap: bookworm, packages: [ca-certificates]}
    provides: {glibc: "2.36", toolkit: "2"}
    build_packages: [gcc]
""",
    )
    catalog = load_catalog([empty.root], Problems())

    assert [broken.name for broken in catalog.broken_among(["toolkit"])] == ["toolkit"]
    assert catalog.broken_among(["vendor"]) == ()


def test_directories_without_a_component_are_ignored(tree: Tree) -> None:
    tree.write("components/.hidden/x", "")
    tree.write("components/__pycache__/x.pyc", b"\xff")
    tree.write("components/README.md", "")

    assert set(tree.catalog().components) == set(COMPONENTS)


def test_requiring_an_unreadable_component_is_not_a_second_mistake(tree: Tree) -> None:
    tree.component("python", "summary: [\n")

    assert tree.mistakes().count("error: ") == 1


def test_a_components_files_are_kept_with_their_names(tree: Tree) -> None:
    tree.write("components/torch/files/bin/tool", "#!/bin/sh\n")
    tree.write("components/torch/files/__pycache__/x.pyc", b"\xff")
    tree.write("components/torch/smoke.py", "")
    component = tree.catalog().components["torch"]

    assert component.files == {"bin/tool": b"#!/bin/sh\n"}
    assert component.smoke == tree.root / "components/torch/smoke.py"


def test_every_name_that_can_be_asked_for_is_known(tree: Tree) -> None:
    assert tree.catalog().provided_names == {*COMPONENTS, "cuda", "glibc", "driver"}


def test_what_bakehouse_brings_can_be_read() -> None:
    components = load_catalog([HOME / "recipes"]).components

    assert components["debian"].is_base
    assert not components["pytorch"].is_base


def test_every_address_that_bakehouse_brings_is_pinned_or_says_where_its_facts_come_from() -> None:
    for component in load_catalog([HOME / "recipes"]).components.values():
        text = (component.directory / "component.yaml").read_text()
        for release in component.releases:
            for artifact in (source for variant in release.variants for source in variant.spec.artifacts):
                assert artifact.sha256 or "source:" in text, artifact
