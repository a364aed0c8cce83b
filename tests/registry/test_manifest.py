import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.errors import Reason
from bakehouse.registry.manifest import (
    DOCKER_MANIFEST,
    FORMS,
    GZIP_LAYER,
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    UnreadableManifestError,
    content_id,
    digest_of,
    parse,
    short,
    unfit,
    unfit_platform,
)

CONFIG = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:c", "size": 10}


def layer(media_type: str = GZIP_LAYER) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": "sha256:" + "ab" * 32, "size": 100}


def manifest(**changed: Any) -> Manifest:
    document = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": CONFIG, "layers": [layer()]}
    return parse(json.dumps(document | changed).encode())


def test_what_sagemaker_takes_is_fit() -> None:
    assert unfit(manifest(layers=[layer(), layer()]), FORMS["docker"]) == ()


def test_the_digest_is_that_of_the_bytes() -> None:
    image_manifest = manifest()
    assert image_manifest.digest == digest_of(image_manifest.content)


def test_bytes_are_those_that_a_registry_stores() -> None:
    image_manifest = manifest(layers=[layer(), layer()])
    assert image_manifest.bytes == len(image_manifest.content) + 100 + 100 + 10


def test_an_oci_manifest_is_unfit() -> None:
    assert unfit(manifest(mediaType=OCI_MANIFEST), FORMS["docker"]) == (
        Reason("its manifest is `application/vnd.oci.image.manifest.v1+json`, not Docker schema 2"),
    )


def test_every_layer_that_is_not_gzip_is_named() -> None:
    tar, zstd = "application/vnd.docker.image.rootfs.diff.tar", GZIP_LAYER.replace("gzip", "zstd")
    assert unfit(manifest(layers=[layer(tar), layer(), layer(zstd)]), FORMS["docker"]) == (
        Reason(f"layer 1 of 3 (sha256:abababababab) is `{tar}`, not gzip"),
        Reason(f"layer 3 of 3 (sha256:abababababab) is `{zstd}`, not gzip"),
    )


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_what_a_recipe_asks_for_is_fit(compression: str) -> None:
    layers = [layer(f"application/vnd.oci.image.layer.v1.tar+{compression}")]
    form = FORMS["oci" if compression == "gzip" else "oci-zstd"]
    assert unfit(manifest(mediaType=OCI_MANIFEST, layers=layers), form) == ()


def test_a_recipe_that_asks_for_oci_gets_no_docker_manifest() -> None:
    assert unfit(manifest(), FORMS["oci-zstd"]) == (
        Reason("its manifest is `application/vnd.docker.distribution.manifest.v2+json`, not OCI"),
        Reason(f"layer 1 of 1 (sha256:abababababab) is `{GZIP_LAYER}`, not zstd"),
    )


def test_an_image_without_layers_is_unfit() -> None:
    assert unfit(manifest(layers=[]), FORMS["docker"]) == (Reason("it has no layers"),)


def test_an_index_is_unfit_and_its_attestation_named() -> None:
    plain = {"mediaType": OCI_MANIFEST, "digest": "sha256:a", "size": 1}
    attestation = plain | {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX}
    assert unfit(parse(json.dumps(index | {"manifests": [plain]}).encode()), FORMS["docker"]) == (
        Reason("it is an index of 1 (`application/vnd.oci.image.index.v1+json`), not one manifest"),
    )
    assert unfit(
        parse(json.dumps(index | {"manifests": [plain, attestation]}).encode()), FORMS["docker"]
    ) == (
        Reason(
            "it is an index of 2 (`application/vnd.oci.image.index.v1+json`), not one manifest, "
            "and contains an attestation"
        ),
    )


def test_a_manifest_that_names_no_type_has_the_one_it_came_with() -> None:
    document = {"schemaVersion": 2, "config": CONFIG, "layers": [layer()]}
    assert parse(json.dumps(document).encode(), f"{OCI_MANIFEST}; charset=utf-8").media_type == OCI_MANIFEST


@given(
    st.binary()
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_an_invalid_manifest_is_reported(content: bytes) -> None:
    with pytest.raises(UnreadableManifestError):
        parse(content)


def test_the_platform_is_read_from_the_configuration() -> None:
    intel, arm = (b'{"os": "linux", "architecture": "%s"}' % name for name in (b"amd64", b"arm64"))

    assert unfit_platform(intel, "linux/amd64") == unfit_platform(arm, "linux/arm64") == ()
    assert unfit_platform(arm, "linux/amd64") == (Reason("it is for linux/arm64, not linux/amd64"),)
    assert unfit_platform(intel, "linux/arm64") == (Reason("it is for linux/amd64, not linux/arm64"),)
    assert unfit_platform(b"{}", "linux/amd64") == (Reason("its configuration has no platform"),)


def test_the_content_of_an_image_is_its_layers_and_its_configuration_without_labels() -> None:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "history": [{"created_by": "RUN a"}],
        "rootfs": {"type": "layers", "diff_ids": ["sha256:1"]},
        "config": {"Env": ["A=1"], "Cmd": ["sh"], "Labels": {"a": "b"}, "User": ""},
    }

    def content(**changes: object) -> str:
        return content_id(json.dumps({**config, **changes}).encode())

    same = {"Env": ["A=1"], "Cmd": ["sh"], "Labels": {"a": "c"}, "ArgsEscaped": False, "Volumes": None}
    assert content(config=same, history=[], created="2027") == content()
    for change in (
        {"config": {"Env": ["A=2"], "Cmd": ["sh"]}},
        {"config": {"Env": ["A=1"], "Cmd": ["sh"], "User": "a"}},
        {"rootfs": {"type": "layers", "diff_ids": ["sha256:2"]}},
        {"architecture": "arm64"},
    ):
        assert content(**change) != content()


def test_a_short_digest_has_twelve_digits() -> None:
    assert short("sha256:" + "0123456789abcdef" * 4) == "sha256:0123456789ab"
