"""Images for a push without an engine: new layers of wheels and code, and those of the last release.

The signed provenance of that release says what each of its layers was made from. No file of the project does.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bakehouse.builder.build_context import BuildOptions
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import PackedImage, manifest_of
from bakehouse.builder.up_to_date import settings_key
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import EngineError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.layers import wheel_layout
from bakehouse.layers.composed_image import compose_config, layers_of
from bakehouse.ledger.store import open_ledger
from bakehouse.pipeline.compose import LayerWriter, NeedsBuildError, local_python
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace
from bakehouse.publish.attest import bundler_of
from bakehouse.registry.destination import Destination, destination
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.layer_cache import LAYERS, CompressedLayer, LayerCache
from bakehouse.registry.manifest import FORMS, Form, Manifest, content_id, digest_of
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.trust import bundle, provenance
from bakehouse.trust.bundle import RefusedError
from bakehouse.trust.keys import PublicKey
from bakehouse.util.deadline import NEVER
from bakehouse.util.oci import Digest
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """A packed image; its new layers are in the cache, the registry has the others."""

    packed: PackedImage

    def pack(self, _built: BuiltImage, _form: Form, _report: Reporter, _until: float = NEVER) -> PackedImage:
        return self.packed

    def config(self, _built: BuiltImage) -> bytes:
        return self.packed.config


def prepare(
    workspace: Workspace, images: Iterable[Image], report: Reporter, registry: str
) -> list[tuple[BuiltImage, PreparedImage]]:
    """Return images that differ from their last release in wheels and code, with their new layers.

    Raises EngineError for an image that needs an engine.
    """
    with (
        destination(workspace.project, registry, report) as target,
        private_directory(workspace.project.state) as directory,
    ):
        try:
            return [_prepare(workspace, image, report, target, directory) for image in images]
        except (NeedsBuildError, RegistryError) as error:
            message = f"a release without an engine is not possible: {error}"
            raise EngineError(message) from error


def _prepare(
    workspace: Workspace, image: Image, report: Reporter, target: Destination, directory: Path
) -> tuple[BuiltImage, PreparedImage]:
    release, names = _last_release(workspace.project, image, target)
    form = FORMS[image.format]
    cache = LayerCache(workspace.project.cache / LAYERS, form.compression)

    def stored(digest: Digest) -> Path | None:
        layer = cache.get(digest)
        return layer.path if layer else None

    def byte_code(contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if python := local_python(image):
            return wheel_layout.byte_code(contents, python=python, directory=directory)
        raise NeedsBuildError(f"this machine does not have the Python of `{image.name}` for byte code")

    writer = LayerWriter(workspace, image, directory, stored, byte_code, report, BuildOptions())
    old = layers_of(release.config, [0] * len(release.layers))
    if old is None:
        raise NeedsBuildError(f"BuildKit did not write the last release of `{image.name}`")
    layers = writer.layers(old, names)
    packed = {layer.diff_id: layer for layer in release.layers}
    for digest, path in writer.new.items():
        with path.open("rb") as file:
            packed[digest] = cache.get(digest) or cache.add(iter(partial(file.read, 1 << 20), b""))
    compressed = tuple(packed[layer.digest] for layer in layers)
    config = compose_config(release.config, layers)
    prepared = PackedImage(manifest_of(config, compressed, form), config, compressed)
    built = BuiltImage(
        image, digest_of(config), Digest(""), prepared.manifest.layer_bytes, content_id(config)
    )
    return built, PreparedImage(prepared)


def _last_release(
    project: ProjectSettings, image: Image, target: Destination
) -> tuple[PackedImage, tuple[str, ...]]:
    """Return the last release in the repository of a push, and what its layers were made from."""
    repository, bundler = f"{target.prefix}/{image.name}", bundler_of(project)
    [registry, *others] = target.registries
    if bundler is None:
        raise NeedsBuildError(
            "the project has no `signing_key`, so no statement names the layers of a release"
        )
    if others or image.budgets:
        reason = "goes to several registries" if others else "has a `budget`, for which an engine measures"
        raise NeedsBuildError(f"`{image.name}` {reason}")
    released = [
        record
        for record in open_ledger(project).records(image.name)
        if (record.registry, record.repository) == (registry.host, repository)
    ]
    remote = ArtifactRepository(registry, repository, RetryPolicy())
    manifest = remote.manifest(released[-1].digest) if released else None
    if manifest is None or manifest.config is None or manifest.media_type != FORMS[image.format].manifest:
        raise NeedsBuildError(f"`{registry.host}/{repository}` has no release")
    facts = _signed_facts(remote, manifest, (image.name, f"{registry.host}/{repository}"), bundler.public_key)
    config = remote.blob(manifest.config.digest)
    names = facts.get(provenance.LAYERS)
    if names is None or digest_of(config) != manifest.config.digest:
        raise NeedsBuildError(f"no statement of your key names the layers of `{released[-1].image_uri}`")
    if facts[provenance.SETTINGS] != settings_key(image):
        raise NeedsBuildError(f"the base, settings or steps of `{image.name}` changed")
    diff_ids = json.loads(config)["rootfs"]["diff_ids"]
    layers = (
        CompressedLayer(Digest(diff_id), blob.digest, blob.bytes, Path("absent"))
        for diff_id, blob in zip(diff_ids, manifest.layers, strict=True)
    )
    return PackedImage(manifest, config, tuple(layers)), tuple(names)


def _signed_facts(
    remote: ArtifactRepository, manifest: Manifest, names: Sequence[str], key: PublicKey
) -> Mapping[str, Any]:
    """Return the internal parameters of the provenance that a key signed; empty without one."""
    for content in remote.contents(manifest.digest, bundle.MEDIA_TYPE).values():
        with contextlib.suppress(RefusedError):
            statement = bundle.verify(content, manifest.digest, names, [key])
            if statement.predicate_type == provenance.PREDICATE_TYPE:
                facts: Mapping[str, Any] = statement.predicate["buildDefinition"]["internalParameters"]
                return facts
    return {}
