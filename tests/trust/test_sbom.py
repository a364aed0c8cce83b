"""The bill of materials: what is in it, and that it is the same each time and valid."""

import json
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from bakehouse.analysis.packages import Installed, SystemPackage
from bakehouse.trust import sbom
from bakehouse.util.oci import Digest
from tests.support.planned_images import DIGEST, INSTALLED, SITE, planned


def document(installed: Installed = INSTALLED) -> dict[str, Any]:
    return dict(json.loads(sbom.text_of(planned(), DIGEST, installed)))


def component(name: str) -> dict[str, Any]:
    [entry] = [item for item in document()["components"] if item["name"] == name]
    return dict(entry)


def test_it_is_valid() -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    text = sbom.text_of(planned(), DIGEST, INSTALLED).decode()
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"shelf"')) is not None


def test_the_same_image_gives_the_same_bytes() -> None:
    assert sbom.text_of(planned(), DIGEST, INSTALLED) == sbom.text_of(planned(), DIGEST, INSTALLED)
    assert "timestamp" not in sbom.text_of(planned(), DIGEST, INSTALLED).decode()


def test_another_digest_has_another_serial_number() -> None:
    other = json.loads(sbom.text_of(planned(), Digest("sha256:" + "5f" * 32), INSTALLED))
    assert other["serialNumber"] != document()["serialNumber"]


def test_it_is_about_the_digest() -> None:
    about = document()["metadata"]["component"]
    assert (about["type"], about["name"], about["version"]) == ("container", "mpi-cpu", DIGEST)
    assert about["purl"] == f"pkg:oci/mpi-cpu@{DIGEST}"
    assert {"name": "bakehouse:key", "value": "a" * 64} in about["properties"]


@pytest.mark.parametrize(
    ("name", "purl"),
    [
        ("libc6", "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64&distro=debian-12"),
        ("tzdata", "pkg:deb/debian/tzdata@1:2026a?arch=all&distro=debian-12"),
        ("PyYAML", "pkg:pypi/pyyaml@6.0.3"),
        ("scikit-learn", "pkg:pypi/scikit-learn@1.7.2"),
        ("metis", "pkg:generic/metis@5.1.0"),
    ],
)
def test_everything_has_its_package_url(name: str, purl: str) -> None:
    assert component(name)["purl"] == purl


def test_a_distribution_has_the_sha256_of_its_lock_however_its_name_is_spelt() -> None:
    assert component("scikit-learn")["hashes"] == [{"alg": "SHA-256", "content": "cd" * 32}]
    assert "hashes" not in component("PyYAML")


def test_a_distribution_tells_where_it_is() -> None:
    paths = [entry["value"] for entry in component("PyYAML")["properties"]]
    assert paths == [SITE, "/usr/lib/python3/dist-packages"]


def test_a_part_tells_the_files_that_it_was_made_from_and_no_secret_of_their_addresses() -> None:
    references = {reference["comment"]: reference for reference in component("metis")["externalReferences"]}
    assert references["metis.tgz"]["url"] == "https://example.com/metis.tgz"
    assert references["metis.tgz"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    unknown = references["metis_5.1.0.dfsg.orig.tar.xz, sha256 unknown"]
    assert unknown["url"] == "pkg:deb/debian/metis@5.1.0.dfsg-7?arch=source"
    assert "hashes" not in unknown


def test_packages_of_rpm_have_their_epoch_as_a_qualifier() -> None:
    packages = (
        SystemPackage("jq", "1.7.1-49.amzn2023", "x86_64"),
        SystemPackage("openssl", "1:3.2.2-1", "x86_64"),
    )
    components = document(Installed("amzn", "2023", packages, (), "rpm"))["components"]

    assert [item["purl"] for item in components if item["purl"].startswith("pkg:rpm")] == [
        "pkg:rpm/amzn/jq@1.7.1-49.amzn2023?arch=x86_64&distro=amzn-2023",
        "pkg:rpm/amzn/openssl@3.2.2-1?arch=x86_64&distro=amzn-2023&epoch=1",
    ]


def test_an_image_without_dpkg_reports_its_packages_as_unknown() -> None:
    bare = Installed("", "", None, ())
    unknown = [
        {"name": "bakehouse:system", "value": "unknown"},
        {"name": "bakehouse:system-packages", "value": "unknown"},
    ]
    assert document(bare)["metadata"]["component"]["properties"][1:] == unknown
    assert [item["name"] for item in document(bare)["components"]] == ["debian", "metis"]
