"""Rebuilds that `reproduce` compares and signs; tests/integration/test_reproduction.py builds them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from bakehouse.engine.protocol import Engine
from bakehouse.errors import StaleError
from bakehouse.maintain import reproduce
from bakehouse.maintain.compare import Reproduction
from bakehouse.plan.workspace import Workspace
from bakehouse.publish import signing
from bakehouse.publish.attest import Bundler
from bakehouse.util.oci import Digest
from tests.support import plans
from tests.support.built_images import BUILT, DIGEST
from tests.support.errors import error_text


def reproduction(image: str, store: str) -> Reproduction:
    return Reproduction(image, store, "the same clock", 2, (DIGEST, DIGEST))


def test_each_image_is_signed_once_with_the_stores_that_built_it(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(BUILT, image=plans.changed(BUILT.image, name="other"))
    signed = []

    def digests(names: tuple[str, ...], _: object) -> list[tuple[object, Digest]]:
        assert names == ("mpi-cpu", "other")
        return [(BUILT, DIGEST), (other, DIGEST)]

    def sign(_: object, image: object, digest: Digest, stores: list[str], *__: object) -> None:
        signed.append((image, digest, stores))

    monkeypatch.setattr(reproduce, "select", lambda _, names: tuple(names))
    monkeypatch.setattr(reproduce, "manifest_digests", digests)
    monkeypatch.setattr(signing, "sign_rebuild", sign)
    workspace = cast("Workspace", type("FakeWorkspace", (), {"project": None}))
    results = [
        reproduction("mpi-cpu", "overlay2"),
        reproduction("other", "overlay2"),
        reproduction("mpi-cpu", "containerd"),
    ]
    reproduce.sign(workspace, results, cast("Bundler", object()), print)

    assert signed == [
        (BUILT.image, DIGEST, ["overlay2", "containerd"]),
        (other.image, DIGEST, ["overlay2"]),
    ]


def test_a_recipe_that_changed_meanwhile_is_an_error() -> None:
    engine = cast("Engine", SimpleNamespace(image=lambda _: None))

    with pytest.raises(StaleError) as caught:
        reproduce.require_same_recipes([BUILT.image], engine)

    assert error_text(caught.value) == (
        "error: the recipe of `mpi-cpu` changed between the two builds\n\n"
        "hint: run `bake reproduce mpi-cpu` again\n"
    )
