"""Images that are refused before any request to a registry."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import cast

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.component import Artifact
from bakehouse.errors import Diagnostic, Location, PublishError, Reason
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.plan.model import BootstrappedBase, RegistryBase
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util.oci import ContentId
from tests.support import plans
from tests.support.built_images import BUILT, CONTENT, DIGEST, IMAGE, PASSED, report
from tests.support.errors import raised

NO_PACKER = cast("Packer", object())
"""Nothing here comes as far as the engine."""


def refusal(
    directory: Path, built: BuiltImage = BUILT, smoke: KnownChecks = PASSED, prefix: str = "bakehouse"
) -> tuple[Diagnostic, ...]:
    publication = PushOptions(day=date(2026, 11, 20), locks=directory, prefix=prefix)
    registry = NamedRegistry("registry.example.com", lambda _: None)
    error = raised(PublishError, publish, built, smoke, registry, NO_PACKER, publication, lambda _: None)
    return error.diagnostics


HINT = "run `bake smoke mpi-cpu`, or publish it as a candidate with `bake push --candidate mpi-cpu`"


def test_an_image_without_a_smoke_test_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, smoke=report()) == (
        Diagnostic(
            "`mpi-cpu` has not passed its smoke test",
            reasons=(Reason("it was never smoke-tested"),),
            facts=(("content", CONTENT),),
            hint=HINT,
        ),
    )


def test_the_smoke_test_of_another_build_does_not_count(tmp_path: Path) -> None:
    assert refusal(tmp_path, smoke=report(Outcome.PASSED, content=ContentId("sha256:" + "0" * 64))) == (
        Diagnostic(
            "`mpi-cpu` has not passed its smoke test",
            reasons=(Reason("its results are of another build"),),
            facts=(("content", CONTENT),),
            hint=HINT,
        ),
    )


def test_failed_checks_are_named(tmp_path: Path) -> None:
    smoke = report(Outcome.FAILED, Outcome.PASSED, Outcome.FAILED)
    assert refusal(tmp_path, smoke=smoke) == (
        Diagnostic(
            "`mpi-cpu` has not passed its smoke test",
            reasons=(Reason("its smoke test failed: `check_1`, `check_3`"),),
            facts=(("content", CONTENT),),
            hint=HINT,
        ),
    )


def test_not_tested_is_not_passed(tmp_path: Path) -> None:
    (diagnostic,) = refusal(tmp_path, smoke=report(Outcome.NOT_TESTED))
    assert diagnostic.reasons == (Reason("its smoke test ran no check"),)


def test_a_base_without_digest_is_refused(tmp_path: Path) -> None:
    image = plans.changed(IMAGE, base=RegistryBase("docker.io/nvidia/cuda:13.0", None))
    assert refusal(tmp_path, built=replace(BUILT, image=image)) == (
        Diagnostic(
            "the base of `mpi-cpu`, `docker.io/nvidia/cuda:13.0`, is not pinned to a digest",
            hint="run `bake lock mpi-cpu`, commit `pins.yaml`, then build and test again",
        ),
    )


def test_a_base_whose_packages_are_not_locked_is_refused(tmp_path: Path) -> None:
    image = plans.changed(IMAGE, base=BootstrappedBase("bakehouse/debian:13-12345678", "trixie", ()))
    assert refusal(tmp_path, built=replace(BUILT, image=image)) == (
        Diagnostic(
            "the packages of Debian `trixie` in `mpi-cpu` are not locked",
            hint="run `bake lock mpi-cpu` and commit the lock, then build and test again",
        ),
    )


def test_unpinned_artifacts_are_refused_with_their_location(tmp_path: Path) -> None:
    location = Location(Path("recipes/components/smp/component.yaml"), 14, 11)
    artifact = Artifact("smp", "url", "https://example.com/smp.whl", "smp.whl", None, location)
    image = replace(IMAGE, unpinned=(artifact,))
    assert refusal(tmp_path, built=replace(BUILT, image=image)) == (
        Diagnostic(
            "the sha256 of `smp` in `mpi-cpu` is unknown",
            location,
            hint="run `bake lock mpi-cpu`, compare the sha256 with the publisher's, then build and test "
            "again",
        ),
    )


def test_a_name_that_no_registry_takes_is_refused_before_the_push(tmp_path: Path) -> None:
    (diagnostic,) = refusal(tmp_path, prefix="Our-Team")
    assert diagnostic.message == "`Our-Team/mpi-cpu` is not a valid repository name"


def test_the_image_uri_names_the_digest() -> None:
    published = PublishedImage("mpi-cpu", "127.0.0.1:5050", "bakehouse/mpi-cpu", ("x",), DIGEST)
    assert published.image_uri == f"127.0.0.1:5050/bakehouse/mpi-cpu@{DIGEST}"


def test_a_rehearsed_image_is_not_a_candidate_either(tmp_path: Path) -> None:
    built = replace(BUILT, is_rehearsed=True)
    publication = PushOptions(day=date(2026, 11, 20), locks=tmp_path, candidate=True)
    registry = NamedRegistry("registry.example.com", lambda _: None)

    with pytest.raises(PublishError, match="rehearsed, not built: it contains stubs"):
        publish(built, PASSED, registry, NO_PACKER, publication, lambda _: None)
