"""Rebuilds that `reproduce` compares and signs; tests/integration/test_reproduction.py builds them."""

import hashlib
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from bakehouse.catalog.recipe import Content
from bakehouse.catalog.run_steps import RunStep
from bakehouse.engine import daemon_info
from bakehouse.engine.protocol import Engine, StoredImage
from bakehouse.errors import DifferenceError, StaleError
from bakehouse.maintain import reproduce
from bakehouse.maintain.reproduce import Reproduction
from bakehouse.plan.workspace import Workspace
from bakehouse.publish import signing
from bakehouse.publish.attest import Bundler
from bakehouse.util.oci import Digest
from tests.support import fake_engine, plans
from tests.support.built_images import BUILT, DIGEST
from tests.support.errors import error_text, raised, refusal
from tests.support.fake_engine import FakeEngine, Run
from tests.support.layer_archives import Member, layer, saved
from tests.support.trees import templates

LOWER = layer(Member("etc/base", b"base"))
IMAGE = plans.changed(fake_engine.image("mine"), content=Content(run=(RunStep("date > /opt/made"),)))


class Store(FakeEngine):
    """An engine that has one image."""

    def __init__(self, *layers: bytes, history: Sequence[str] = ()) -> None:
        super().__init__(lambda spec: Run())
        digests = tuple(hashlib.sha256(layer).hexdigest()[:8] for layer in layers)
        self._stored = StoredImage(fake_engine.DIGEST, 1, layers=digests)
        self.archives[fake_engine.DIGEST] = saved(layers, history, form="none")

    def image(self, reference: str) -> StoredImage | None:
        return self._stored


def compared(first: Store, second: Store) -> Reproduction:
    return reproduce.compare(IMAGE, first, second, templates())


def test_the_same_layers_and_configuration_are_no_difference() -> None:
    reproduction = compared(Store(LOWER), Store(LOWER))

    reproduce.require_same([reproduction])
    assert reproduce.table([reproduction]) == "mine  1 of 1 layers identical  digest identical\n"


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        pytest.param(
            Store(LOWER, layer(Member("opt/made", b"2"))), r"layer 2, of run  \w{8}  \w{8}", id="a layer"
        ),
        pytest.param(Store(LOWER), r"layer 2, of run  \w{8}", id="a layer less"),
        pytest.param(
            Store(LOWER, layer(Member("opt/made", b"1")), history=["RUN true"]),
            r"the layers are identical, but not the configuration  sha256:\w+  sha256:\w+",
            id="the configuration",
        ),
    ],
)
def test_a_difference_is_named_with_its_layer(second: Store, difference: str) -> None:
    reproduction = compared(Store(LOWER, layer(Member("opt/made", b"1"))), second)

    error = raised(DifferenceError, reproduce.require_same, [reproduction])

    assert "digest differs" in reproduce.table([reproduction])
    assert re.fullmatch(
        "error: image `mine` differs when another engine builds it\n\n"
        f"different:\n  {difference}\n\n"
        "hint: a step must not write the time, random numbers, or downloads without a sha256\n",
        error_text(error),
    )


def test_each_image_is_signed_with_the_store_that_built_it(monkeypatch: pytest.MonkeyPatch) -> None:
    signed = []

    def sign(_: object, image: object, digest: Digest, stores: list[str], *__: object) -> None:
        signed.append((image, digest, stores))

    monkeypatch.setattr(reproduce, "select", lambda _, names: tuple(names))
    monkeypatch.setattr(reproduce, "manifest_digests", lambda names, _: [(BUILT, DIGEST)])
    monkeypatch.setattr(signing, "sign_rebuild", sign)
    monkeypatch.setattr(daemon_info, "inspect", lambda: SimpleNamespace(store="overlay2"))
    workspace = cast("Workspace", type("FakeWorkspace", (), {"project": None}))
    results = [Reproduction("mpi-cpu", 2, (DIGEST, DIGEST))]
    reproduce.sign(workspace, results, cast("Bundler", object()), print)

    assert signed == [(BUILT.image, DIGEST, ["overlay2"])]


def test_a_recipe_that_changed_meanwhile_is_an_error() -> None:
    engine = cast("Engine", SimpleNamespace(image=lambda _: None))

    assert refusal(StaleError, reproduce.require_same_recipes, [BUILT.image], engine) == (
        "error: the recipe of `mpi-cpu` changed between the two builds\n\n"
        "hint: run `bake reproduce mpi-cpu` again\n"
    )
