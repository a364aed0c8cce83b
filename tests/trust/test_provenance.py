"""The provenance: what it states, that it is the same each time, and what it keeps to itself."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bakehouse.catalog.apt_lock import Deb
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.trust import provenance
from bakehouse.util.oci import Digest
from tests.support import plans
from tests.support.planned_images import DIGEST, planned

COMMIT = "c0ffee" * 6 + "c0de"


def statement(image: Image, revision: str = COMMIT) -> dict[str, Any]:
    return dict(json.loads(provenance.statement_of(image, DIGEST, revision).content))


def built_from(image: Image) -> dict[str, Any]:
    dependencies = statement(image)["predicate"]["buildDefinition"]["resolvedDependencies"]
    return {dependency["name"]: dependency for dependency in dependencies}


def test_it_is_a_statement_about_the_digest() -> None:
    document = statement(planned())
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://slsa.dev/provenance/v1"
    assert document["subject"] == [{"name": "mpi-cpu", "digest": {"sha256": "4f" * 32}}]


def test_it_names_what_was_asked_for() -> None:
    predicate = statement(planned())["predicate"]
    assert predicate["buildDefinition"]["externalParameters"] == {
        "recipe": "mpi-cpu",
        "key": "a" * 64,
        "platform": "linux/amd64",
        "format": "docker",
    }
    assert predicate["buildDefinition"]["internalParameters"]["components"] == {
        "debian": "12",
        "metis": "5.1.0 (int32)",
    }
    assert predicate["runDetails"]["builder"] == {
        "id": "urn:bakehouse:bake",
        "version": {"bakehouse": "0.2.0"},
    }


def test_files_and_packages_have_the_sha256_that_the_plan_pins() -> None:
    dependencies = built_from(planned())
    assert dependencies["metis.tgz"] == {
        "name": "metis.tgz",
        "uri": "https://example.com/metis.tgz",
        "digest": {"sha256": "ab" * 32},
    }
    assert dependencies["scikit_learn-1.7.2-cp311-cp311-linux.whl"] == {
        "name": "scikit_learn-1.7.2-cp311-cp311-linux.whl",
        "uri": "pkg:pypi/scikit-learn@1.7.2",
        "digest": {"sha256": "cd" * 32},
    }


def test_a_package_of_a_git_repository_has_its_commit() -> None:
    image = planned()
    [stage, *others] = [stage for stage in image.stages if stage.wheels]
    origin = f"git+https://git.example/own@{'a' * 40}"
    sdist = replace(stage.wheels[0], file="own-1.0.tar.gz", origin=origin)
    stage = replace(stage, locked=(*stage.wheels, sdist))
    dependencies = built_from(plans.changed(image, stages=(stage, *others)))
    assert dependencies["own-1.0.tar.gz"]["uri"] == origin


def test_debian_packages_are_listed_if_they_are_locked() -> None:
    deb = Deb("vim", "2:9.0", "ef" * 32, 1000, "pool/main/v/vim/vim_9.0_amd64.deb")
    elsewhere = replace(deb, sha256="12" * 32, site="http://x.example")
    dependencies = built_from(plans.changed(planned(), apt_debs=(elsewhere,)))
    assert dependencies["vim_9.0_amd64.deb"] == {
        "name": "vim_9.0_amd64.deb",
        "uri": "http://x.example/pool/main/v/vim/vim_9.0_amd64.deb",
        "digest": {"sha256": "12" * 32},
    }
    assert built_from(plans.changed(planned(), apt_debs=(deb,)))["vim_9.0_amd64.deb"] == {
        "name": "vim_9.0_amd64.deb",
        "uri": "pkg:deb/debian/vim@2:9.0",
        "digest": {"sha256": "ef" * 32},
    }


def test_missing_checksums_are_reported_as_unknown() -> None:
    dependencies = built_from(planned())
    assert dependencies["metis_5.1.0.dfsg.orig.tar.xz"] == {
        "name": "metis_5.1.0.dfsg.orig.tar.xz",
        "uri": "pkg:deb/debian/metis@5.1.0.dfsg-7?arch=source",
        "annotations": {"sha256": "unknown"},
    }
    assert dependencies["base"] == {
        "name": "base",
        "uri": "pkg:generic/apt-suite@bookworm",
        "annotations": {"packages": [], "sha256": "unknown"},
    }


@pytest.mark.parametrize(
    ("reference", "uri"),
    [
        (
            "example.com:5000/nvidia/cuda:13.0.3-base",
            "pkg:oci/cuda?repository_url=example.com:5000/nvidia/cuda&tag=13.0.3-base",
        ),
        ("example.com:5000/nvidia/cuda", "pkg:oci/cuda?repository_url=example.com:5000/nvidia/cuda"),
        ("ubuntu", "pkg:oci/ubuntu?repository_url=ubuntu"),
    ],
)
def test_a_base_from_a_registry_has_its_digest(reference: str, uri: str) -> None:
    base = RegistryBase(reference, Digest("sha256:" + "77" * 32))
    assert built_from(plans.changed(planned(), base=base))["base"] == {
        "name": "base",
        "uri": uri,
        "digest": {"sha256": "77" * 32},
    }


@pytest.mark.parametrize(
    ("revision", "parameters", "dependency"),
    [
        (COMMIT, {"revision": COMMIT, "dirty": False}, {"gitCommit": COMMIT}),
        (f"{COMMIT}-dirty", {"revision": COMMIT, "dirty": True}, {"gitCommit": COMMIT}),
        ("", {"revision": "unknown", "dirty": "unknown"}, None),
    ],
)
def test_the_commit_of_the_recipes(
    revision: str, parameters: dict[str, object], dependency: dict[str, str] | None
) -> None:
    definition = statement(planned(), revision)["predicate"]["buildDefinition"]
    assert definition["internalParameters"]["recipes"] == parameters
    digests = [entry["digest"] for entry in definition["resolvedDependencies"] if entry["name"] == "recipes"]
    assert digests == ([dependency] if dependency else [])


def test_the_same_image_gives_the_same_bytes_without_secrets_or_places() -> None:
    text = provenance.statement_of(planned(), DIGEST, COMMIT).content
    assert text == provenance.statement_of(planned(), DIGEST, COMMIT).content
    for hidden in ("secret", "sig=", "component.yaml"):
        assert hidden not in text.decode()
