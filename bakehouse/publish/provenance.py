"""States how an image came to be: an in-toto statement with SLSA's provenance, not signed.

It is made of what the plan pins and says `unknown` where nobody knows; nothing of the machine is in it.
"""

import json
from collections.abc import Iterator
from typing import Any

from bakehouse import __version__
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.publish import purls
from bakehouse.util.oci import PLATFORM, Digest

MEDIA_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_BUILD_TYPE = "urn:bakehouse:image:1"
_BUILDER = "urn:bakehouse:bake"
_UNKNOWN = "unknown"


def text_of(image: Image, digest: Digest, revision: str) -> bytes:
    """The statement about the image with this digest; `revision` is what `revisions` says of the recipes."""
    commit = revision.removesuffix("-dirty")
    statement = {
        "_type": _STATEMENT_TYPE,
        "subject": [{"name": image.name, "digest": _sha256(digest.removeprefix("sha256:"))}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {
                    "recipe": image.name,
                    "key": image.key,
                    "platform": PLATFORM,
                    "format": image.format,
                },
                "internalParameters": {
                    # Without a commit there is nothing that files could differ from.
                    "recipes": {
                        "revision": commit or _UNKNOWN,
                        "dirty": commit != revision if commit else _UNKNOWN,
                    },
                    "components": {
                        one.component: _version(one.version, one.variant) for one in image.all_parts
                    },
                    # Their files are among the dependencies where they are locked
                    "apt": {"build": sorted(_build_apt(image)), "image": sorted(image.apt)},
                },
                "resolvedDependencies": [
                    *_base(image),
                    *_recipes(commit),
                    *_files(image),
                    *_packages(image),
                    *_debs(image),
                ],
            },
            "runDetails": {"builder": {"id": _BUILDER, "version": {"bakehouse": __version__}}},
        },
    }
    return (json.dumps(statement, indent=1, sort_keys=True) + "\n").encode()


def _version(version: str, variant: str) -> str:
    return f"{version} ({variant})" if variant else version


def _build_apt(image: Image) -> set[str]:
    return {*image.toolchain, *(package for stage in image.stages for package in stage.build_apt)}


def _base(image: Image) -> Iterator[dict[str, Any]]:
    base = image.base
    if isinstance(base, BootstrappedBase):
        # All that it is made of is among the dependencies where the suite is locked
        yield {
            "name": "base",
            "uri": purls.of_suite(base.suite),
            "annotations": {"packages": list(base.packages), "sha256": _UNKNOWN},
        }
    else:
        sha256 = base.digest.removeprefix("sha256:") if base.digest else None
        yield {"name": "base", "uri": purls.of_reference(base.reference), **_pinned(sha256)}


def _recipes(commit: str) -> Iterator[dict[str, Any]]:
    if commit:
        yield {"name": "recipes", "digest": {"gitCommit": commit}}


def _files(image: Image) -> Iterator[dict[str, Any]]:
    """The artifacts of the recipe's components, each once."""
    found = {
        (one.file, one.address): {"name": one.file, "uri": purls.of_artifact(one), **_pinned(one.sha256)}
        for stage in image.stages
        for one in stage.artifacts.values()
    }
    yield from (found[key] for key in sorted(found))


def _packages(image: Image) -> Iterator[dict[str, Any]]:
    """The Python packages of all locks, each file once."""
    found = {
        (one.file, one.sha256): {"name": one.file, "uri": purls.of_distribution(one), **_pinned(one.sha256)}
        for stage in image.stages
        for one in (*stage.wheels, *stage.sdists)
    }
    yield from (found[key] for key in sorted(found))


def _debs(image: Image) -> Iterator[dict[str, Any]]:
    """The distribution's packages that are locked, of the base, the build stages and the image."""
    for one in sorted(image.debs, key=lambda one: one.file):
        yield {"name": one.file, "uri": purls.of_deb(one), **_pinned(one.sha256)}


def _pinned(sha256: str | None) -> dict[str, Any]:
    return {"digest": _sha256(sha256)} if sha256 else {"annotations": {"sha256": _UNKNOWN}}


def _sha256(value: str) -> dict[str, str]:
    return {"sha256": value}
