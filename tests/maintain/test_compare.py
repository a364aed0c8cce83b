"""Images of two engines, compared."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.recipe import Content
from bakehouse.catalog.run_steps import RunStep
from bakehouse.cli import diagnostics
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import Location
from bakehouse.maintain import compare
from bakehouse.maintain.compare import Reproduction, Side
from bakehouse.plan.model import Image, RegistryBase
from tests.support import fake_engine, plans
from tests.support.fake_engine import FakeEngine, Run
from tests.support.layer_archives import Member, layer, saved
from tests.support.trees import templates

LOWER = layer(Member("etc/base", b"base"))
IMAGE = plans.changed(fake_engine.image("mine"), content=Content(run=(RunStep("date > /opt/made"),)))


class Store(FakeEngine):
    """An engine that has one image."""

    def __init__(self, *layers: bytes, digest: str = fake_engine.DIGEST, runs: Run | None = None) -> None:
        super().__init__(lambda spec: runs or Run())
        self._stored = StoredImage(
            digest, 1, layers=tuple(hashlib.sha256(layer).hexdigest() for layer in layers)
        )
        self.archives[digest] = saved(layers, form="none")

    def image(self, reference: str) -> StoredImage | None:
        return self._stored


def compared(first: Store, second: Store, directory: Path, store: str = "overlay2") -> Reproduction:
    sides = Side(first, "containerd"), Side(second, store)
    return compare.compare(
        IMAGE, *sides, clock="clock 40 days ahead", templates=templates(), directory=directory
    )


@pytest.fixture
def reproduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    """An image whose own step wrote the time."""
    monkeypatch.setattr("bakehouse.maintain.compare.shutil.which", lambda name: None)
    first = layer(Member("opt/made", b"22 November"), Member("opt/same", b"1"))
    second = layer(Member("opt/made", b"1 January"), Member("opt/same", b"1"))
    return compared(Store(LOWER, first), Store(LOWER, second), tmp_path)


@pytest.mark.parametrize("store", ["overlay2", "containerd"])
def test_the_same_image_has_one_configuration_on_every_store(tmp_path: Path, store: str) -> None:
    reproduction = compared(Store(LOWER), Store(LOWER, digest="sha256:" + "5a" * 32), tmp_path, store)
    assert reproduction.is_same
    assert compare.table([reproduction]) == (
        f"mine  {store} store  1 of 1 layers identical  digest identical  clock 40 days ahead\n"
    )


def test_other_settings_with_the_same_layers_are_named(tmp_path: Path) -> None:
    other = Store(LOWER)
    other.archives[fake_engine.DIGEST] = saved([LOWER], ["RUN true"], form="none")

    reproduction = compared(Store(LOWER), other, tmp_path)

    assert not reproduction.is_same
    assert "  digest differs  " in compare.table([reproduction])
    diagnostic = compare.diagnostic(reproduction)
    assert diagnostic.facts == tuple(zip(("first", "second"), reproduction.digests, strict=True))
    (table,) = diagnostic.tables
    assert table.title == "the layers are identical, but these differ"
    assert [line.partition(":")[0] for (line,) in table.rows] == ["`history`"]


def test_a_layer_that_differs_is_reported_with_whose_it_is_and_its_files(reproduction: Reproduction) -> None:
    assert not reproduction.is_same
    assert compare.table([reproduction]).startswith("mine  overlay2 store  1 of 2 layers identical  ")
    assert diagnostics.failure_text(compare.diagnostic(reproduction)) == (
        "error: image `mine` differs when an engine with the overlay2 store builds it\n"
        "\n"
        "layer 2, of run:\n"
        "  /opt/made  content 0342d5c5dcf9 and b60ecd870f50, 11 and 9 bytes\n"
        "\n"
        "hint: a step must not write the time, random numbers, or downloads without a sha256\n"
    )


def test_where_no_content_differs_that_can_be_the_way_of_the_store(tmp_path: Path) -> None:
    plain = layer(Member("opt/made", b"1"))
    marked = layer(Member("opt/.wh..wh..opq", b""), Member("opt/made", b"1"))

    other, same = (
        compared(Store(LOWER, plain), Store(LOWER, marked), tmp_path, store)
        for store in ("overlay2", "containerd")
    )

    assert compare.diagnostic(other).hint == (
        "each store records a step in its own way; the build on `containerd` compares equal stores"
    )
    assert compare.diagnostic(same).hint.startswith("a step must not write the time")


def test_of_many_files_some_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    names = [f"opt/{number:03}" for number in range(25)]
    first, second = (layer(*(Member(name, b"x", mtime=time) for name in names)) for time in (0, 1))

    reproduction = compared(Store(LOWER, first), Store(LOWER, second), tmp_path)

    (table,) = compare.diagnostic(reproduction).tables
    assert len(table.rows) == 21
    assert table.rows[-1] == ("and 5 more", "")


def test_a_layer_too_many_is_a_difference(tmp_path: Path) -> None:
    reproduction = compared(Store(LOWER), Store(LOWER, layer(Member("more"))), tmp_path)

    (difference,) = reproduction.differing
    assert difference.digests[0] == "none"
    assert [file.path for file in difference.files] == ["/more"]


def test_what_no_lock_has_is_reported() -> None:
    base = RegistryBase("library/ubuntu:24.04", None)
    image: Image = plans.changed(IMAGE, base=base, apt=("libnuma1",), content=Content(run=(RunStep("true"),)))

    assert compare.unlocked(image) == (
        "its base has no digest",
        "its Debian packages are not locked",
        "its own steps may download anything",
    )


def test_an_archive_without_a_sha256_is_reported() -> None:
    archive = Artifact("efa", "url", "https://example.com/efa", "efa.tar.gz", None, Location(Path("a"), 1, 1))
    image = replace(fake_engine.image("mine"), unpinned=(archive,))

    assert "the sha256 of `efa.tar.gz` is unknown" in compare.unlocked(image)


def test_files_are_looked_into_where_there_is_a_program_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "diffoscope"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nshift 3\ncat "$@"\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    first, second = (
        Store(layer(Member("opt/made", content)), runs=Run(files={"/opt/made": content}))
        for content in (b"one\n", b"other\n")
    )

    reproduction = compared(first, second, tmp_path)

    assert reproduction.looked_into == (("/opt/made", ("one", "other")),)
    assert "/opt/made differs in:\n  one\n  other\n" in diagnostics.failure_text(
        compare.diagnostic(reproduction)
    )
