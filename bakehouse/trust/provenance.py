"""Build provenance of an image: an in-toto statement with an SLSA predicate.

It records the inputs that the plan pins, `unknown` for the others, and nothing about the build machine.
"""

from collections.abc import Iterator
from typing import Any

from bakehouse import __version__
from bakehouse.builder.up_to_date import settings_key
from bakehouse.catalog.git_history import DIRTY
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.plan.unpinned import unpinned_inputs
from bakehouse.trust.bundle import Statement, statement
from bakehouse.trust.sbom import (
    UNKNOWN,
    artifact_uri,
    deb_purl,
    distribution_purl,
    reference_purl,
    suite_purl,
)
from bakehouse.util import git
from bakehouse.util.oci import Digest

MEDIA_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
UNPINNED = "unpinned"
"""Internal parameter with the inputs that nothing pins."""
LAYERS, SETTINGS = "layers", "settings"
"""Internal parameters with what decides the layers above the base, lowest first, and the instructions."""
_BUILD_TYPE = "urn:bakehouse:image:1"
BUILDER = {"id": "urn:bakehouse:bake", "version": {"bakehouse": __version__}}


def statement_of(image: Image, digest: Digest, revision: str) -> Statement:
    """Return the statement about the image with this digest; `revision` is that of the recipes' checkout."""
    commit = revision.removesuffix(DIRTY)
    predicate = {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {
                "recipe": image.name,
                "key": image.key,
                "platform": image.platform,
                "format": image.format,
            },
            "internalParameters": {
                # Without a commit, `dirty` is undefined.
                "recipes": {
                    "revision": commit or UNKNOWN,
                    "dirty": commit != revision if commit else UNKNOWN,
                },
                "components": {part.component: part.version_text for part in image.all_parts},
                # Locked packages are also listed as resolved dependencies.
                "apt": {"build": sorted(_build_apt(image)), "image": sorted(image.apt)},
                LAYERS: list(image.layer_names),
                SETTINGS: settings_key(image),
                UNPINNED: [item.text for item in unpinned_inputs(image)],
            },
            "resolvedDependencies": [
                *_base(image),
                *_recipes(commit),
                *_files(image),
                *_packages(image),
                *_debs(image),
            ],
        },
        "runDetails": {"builder": BUILDER},
    }
    return statement(image.name, digest, PREDICATE_TYPE, predicate)


def _build_apt(image: Image) -> set[str]:
    return {*image.toolchain, *(package for stage in image.stages for package in stage.build_apt)}


def _base(image: Image) -> Iterator[dict[str, Any]]:
    base = image.base
    if isinstance(base, BootstrappedBase):
        # The packages of a locked suite are listed as resolved dependencies.
        yield {
            "name": "base",
            "uri": suite_purl(base.suite),
            "annotations": {"packages": list(base.packages), "sha256": UNKNOWN},
        }
    else:
        sha256 = base.digest.removeprefix("sha256:") if base.digest else None
        yield {"name": "base", "uri": reference_purl(base.reference), **_pinned(sha256)}


def _recipes(commit: str) -> Iterator[dict[str, Any]]:
    if commit:
        yield {"name": "recipes", "digest": {"gitCommit": commit}}


def _files(image: Image) -> Iterator[dict[str, Any]]:
    """Artifacts of the recipe's components, each once."""
    artifacts = {
        (artifact.file, artifact.address): artifact
        for stage in image.stages
        for artifact in stage.artifacts.values()
    }
    for _, artifact in sorted(artifacts.items(), key=lambda item: item[0]):
        yield {"name": artifact.file, "uri": artifact_uri(artifact), **_pinned(artifact.sha256)}


def _packages(image: Image) -> Iterator[dict[str, Any]]:
    """Python packages of all locks and their build requirements, each file once."""
    packages = {
        (package.file, package.sha256): package
        for stage in image.stages
        for package in (*stage.wheels, *stage.sdists, *stage.build_requirements)
    }
    for _, package in sorted(packages.items(), key=lambda item: item[0]):
        uri = package.origin if package.origin.startswith(git.PREFIX) else distribution_purl(package)
        yield {"name": package.file, "uri": uri, **_pinned(package.sha256)}


def _debs(image: Image) -> Iterator[dict[str, Any]]:
    """Locked Debian packages of the base, the build stages and the image."""
    for deb in sorted(image.debs, key=lambda deb: deb.file):
        yield {"name": deb.file, "uri": deb_purl(deb), **_pinned(deb.sha256)}


def _pinned(sha256: str | None) -> dict[str, Any]:
    return {"digest": {"sha256": sha256}} if sha256 else {"annotations": {"sha256": UNKNOWN}}
