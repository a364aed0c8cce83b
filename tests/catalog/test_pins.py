"""Pins of a project: what they replace, and mistakes in their file."""

import time

import pytest

from bakehouse.catalog import cache
from bakehouse.catalog.component import Artifact, BaseSource
from bakehouse.catalog.pins import PinsFile
from bakehouse.errors import RecipeError
from bakehouse.util.oci import Digest
from tests.support.errors import raised, refusal
from tests.support.trees import Tree

OLD, NEW = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
VENDOR = """\
summary: A vendor's
registries: {{us-east-1: one.example, eu-west-1: two.example}}
releases:
  - version: "1"
    base: {{image: "train:1", build_image: "devel:1", digest: {digest}}}
    artifacts:
      known: {{url: "https://x.example/known", sha256: {sha}}}
      unknown: {{url: "https://x.example/a,b/unknown", sha256: unknown}}
      source: {{debian: part=1, file: part_1.tar.xz, sha256: unknown}}
"""


@pytest.fixture
def vendor(tree: Tree) -> Tree:
    tree.component("vendor", VENDOR.format(digest="unknown", sha="c" * 64))
    return tree


def spec(tree: Tree) -> tuple[BaseSource, tuple[Artifact, ...]]:
    [found] = tree.catalog().components["vendor"].specs
    assert found.base
    return found.base, found.artifacts


def test_pins_replace_what_is_unknown(vendor: Tree) -> None:
    path = vendor.write(
        "pins.yaml",
        f"images:\n  two.example/train:1: {NEW}\n  one.example/devel:1: {OLD}\nfiles:\n"
        f"  https://x.example/known: {{sha256: {'d' * 64}, bytes: 4}}\n"
        f"  https://x.example/a,b/unknown: {{sha256: {'d' * 64}, bytes: 4}}\n"
        f"  debian:part=1/part_1.tar.xz: {{sha256: {'e' * 64}, bytes: 5}}\n",
    )
    base, artifacts = spec(vendor)

    assert (base.digest, base.build_reference) == (NEW, f"devel:1@{OLD}")
    assert base.digest_location
    assert (base.digest_location.path, base.digest_location.line) == (path, 2)
    assert [artifact.sha256 for artifact in artifacts] == ["c" * 64, "d" * 64, "e" * 64]
    assert [artifact.bytes for artifact in artifacts] == [None, 4, 5]


def test_a_pin_replaces_the_digest_of_a_component(vendor: Tree) -> None:
    vendor.component("vendor", VENDOR.format(digest=OLD, sha="c" * 64))
    assert spec(vendor)[0].digest == OLD
    vendor.write("pins.yaml", f"images: {{one.example/train:1: {NEW}, three.example/train:1: {OLD}}}\n")
    assert spec(vendor)[0].digest == NEW


def test_a_pin_on_which_public_files_agree_outlives_a_lock(vendor: Tree) -> None:
    agreed = (
        f"images:\n  two.example/train:1: {{digest: {NEW}, agree: 5, seen: 2026-11-29}}\nfiles:\n"
        f"  https://x.example/a,b/unknown: {{sha256: {'d' * 64}, agree: 2, seen: 2026-11-29}}\n"
        "looked:\n  three.example/train:1: public files, 2026-11-29\n"
    )
    path = vendor.write("pins.yaml", agreed)
    base, artifacts = spec(vendor)
    assert (base.digest, artifacts[1].sha256, artifacts[1].bytes) == (NEW, "d" * 64, None)

    PinsFile(path.parent).record_image("one.example/train:1", Digest(OLD), ())

    assert path.read_text().partition("\n")[2] == agreed.replace(
        "images:\n", f"images:\n  one.example/train:1: {OLD}\n"
    )


def test_a_pin_on_which_files_agree_says_when_they_were_read(vendor: Tree) -> None:
    vendor.write(
        "pins.yaml",
        f"images: {{a: {{digest: {NEW}, agree: 5}}, b: {{digest: {NEW}, agree: 1, seen: May}}}}\n",
    )
    assert [mistake.message for mistake in raised(RecipeError, vendor.catalog).diagnostics] == [
        "`a` has no `seen`",
        "`May` is not a date",
    ]


@pytest.mark.parametrize("text", ["", "# made by `bake lock`\n", "images:\nfiles:\n"])
def test_all_pins_can_be_deleted(vendor: Tree, text: str) -> None:
    vendor.write("pins.yaml", text)
    assert spec(vendor)[0].digest is None


@pytest.mark.parametrize("size", ["unknown", "0", "x"])
def test_a_pin_needs_a_size(vendor: Tree, size: str) -> None:
    vendor.write("pins.yaml", f"files: {{b: {{sha256: {'d' * 64}, bytes: {size}}}}}\n")
    [mistake] = raised(RecipeError, vendor.catalog).diagnostics
    assert mistake.message == f"`{size}` is not a valid number of bytes"
    assert mistake.hint == "restore the file from version control, or delete the entry and run `bake lock`"


def test_mistakes_in_pins(vendor: Tree) -> None:
    vendor.write("pins.yaml", "image: {}\nimages: {a: latest}\nfiles: {b: {sha256: x}}\n")
    expected = """\
error: unknown key `image` in `pins.yaml`
  --> pins.yaml:1:1
   |
 1 | image: {}
   | ^^^^^

hint: did you mean `images`?

error: `latest` is not a digest
  --> pins.yaml:2:13
   |
 2 | images: {a: latest}
   |             ^^^^^^

hint: restore the file from version control, or delete the entry and run `bake lock`

error: `b` has no `bytes`
  --> pins.yaml:3:12
   |
 3 | files: {b: {sha256: x}}
   |            ^

error: `x` is not a sha256
  --> pins.yaml:3:21
   |
 3 | files: {b: {sha256: x}}
   |                     ^

hint: restore the file from version control, or delete the entry and run `bake lock`
"""
    assert refusal(RecipeError, vendor.catalog) == expected


def test_a_changed_pin_is_read_anew(vendor: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(vendor.root / "cache"))
    monkeypatch.setattr(cache, "_SETTLED", -(10**12))
    for digest in (OLD, NEW):
        time.sleep(0.05)
        vendor.write("pins.yaml", f"images: {{one.example/train:1: {digest}}}\n")
        for _ in range(2):
            [found] = cache.load([vendor.root]).catalog.components["vendor"].specs
            assert found.base
            assert found.base.digest == digest
