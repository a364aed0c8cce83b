"""Images in which only wheels or training code changed: their layers are written here, without a build."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import IO

from bakehouse.builder import up_to_date
from bakehouse.builder.build_context import BuildOptions
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.code_copies import write_code
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.size_budget import FILES, REQUIREMENTS
from bakehouse.engine import usage_lock
from bakehouse.engine.content_store import StoredFiles
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import BuildError
from bakehouse.evidence import step_layers
from bakehouse.evidence.step_layers import RowsByKey
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import required_files
from bakehouse.layers import composed_image, wheel_layout
from bakehouse.layers.composed_image import Layer
from bakehouse.layers.stored_layer import StoredLayer, read_layer
from bakehouse.layers.wheel_layout import Wheel
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.layers import LayerOwner
from bakehouse.plan.model import Image, Stage
from bakehouse.plan.wheel_layers import SDISTS
from bakehouse.plan.workspace import Workspace
from bakehouse.registry.manifest import content_id, digest_of
from bakehouse.util.files import read_bytes
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.oci import EPOCH, Digest, Sha256
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

_DIRECTORY = "/run/bakehouse"
_SDISTS = REQUIREMENTS + SDISTS
_COMPILE_MEMORY = 4 << 30
_COMPILE_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class ChangedLayers:
    """An image, and the stored image from which it differs in layers that can be written here."""

    image: Image
    stored: StoredFiles
    digest: Digest
    owners: tuple[LayerOwner, ...]
    base: tuple[Layer, ...]
    others: tuple[Layer, ...]
    """Layers above the base, without those of `stage`."""
    wheels: Mapping[str, Layer]
    """Layers of wheels of the stored image, by the path that the Dockerfile copies."""
    stage: Stage | None
    """The stage of the recipe's packages, if their layers differ."""

    def stored_layer(self, path: str) -> StoredLayer | None:
        """Return a layer of wheels of the stored image."""
        layer = self.wheels.get(path)
        return read_layer(self.stored.blob(layer.digest)) if layer else None


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes new layers to a directory."""

    directory: Path
    new: dict[Digest, Path] = field(default_factory=dict)

    def write(self, write: Callable[[IO[bytes]], object], wheels: str = "") -> Layer:
        path = self.directory / f"{len(self.new)}.tar"
        with path.open("w+b") as file:
            write(file)
            file.flush()
            file.seek(0)
            digest = file_digest(file, "sha256")
        layer = Layer(Digest(f"sha256:{digest.hexdigest()}"), path.stat().st_size, wheels)
        self.new[layer.digest] = path
        return layer


def compose_images(
    workspace: Workspace, images: Iterable[Image], engine: Engine, report: Reporter, options: BuildOptions
) -> None:
    """Write and load each image that differs from its last build only in wheels and training code.

    The engine then has the image that a build would give. Raises BuildError for wheels that cannot be
    installed.
    """
    project = workspace.project
    rows = step_layers.by_key(step_layers.read(project.state))
    for image in images:
        if up_to_date.find_up_to_date([image], project, engine):
            continue
        if last := up_to_date.last_build(image, project, engine):
            with usage_lock.engine_in_use(), private_directory(project.state) as directory:
                stored, owners = engine.stored_files(last), layer_owners(image, workspace.templates)
                change = changed_layers(image, last, stored, owners, rows) if stored else None
                wheels = _open_wheels(workspace, change, report, options) if change else None
                if change is None or wheels is None or _replaces_others(change, [*wheels.values()]):
                    continue
                writer = _Writer(directory)
                built = _write(change, wheels, writer, engine)
                written = writer.new.keys() - {layer.digest for layer in change.others}
                size = format_bytes(sum(writer.new[digest].stat().st_size for digest in written))
            write_code(image, project.output)
            up_to_date.record_build(built, project)
            report(f"{image.name}: wrote {format_count(len(written), 'layer')} ({size}) without a build step")


def changed_layers(
    image: Image, last: Digest, stored: StoredFiles, owners: tuple[LayerOwner, ...], rows: RowsByKey
) -> ChangedLayers | None:
    """Return what differs from the last build, as it is stored; None if a build step has to run."""
    keys = image.layer_keys
    layers = composed_image.layers_of(stored)
    if layers is None or len(keys) != len(owners):
        return None

    def is_known(key: ImageLayer, layer: Layer) -> bool:
        found = {row.digest for row in rows.get((key.key, image.platform), ()) if row.digest}
        return bool(key.key) and key.is_pinned and found == {layer.digest}

    stage = next((stage for stage in image.stages if stage.image and stage.layers), None)
    own = [key for key, owner in zip(keys, owners, strict=True) if stage and owner.name == REQUIREMENTS]
    wheels = [layer for layer in layers if layer.wheels]
    if len(own) == len(wheels) and all(map(is_known, own, wheels)):
        stage = None
    old = [layer for layer in layers if not (stage and layer.wheels)]
    pairs = [
        (key, owner)
        for key, owner in zip(keys, owners, strict=True)
        if not (stage and owner.name == REQUIREMENTS)
    ]
    base, others = old[: len(old) - len(pairs)], old[len(old) - len(pairs) :]
    for (key, owner), layer in zip(pairs, others, strict=True):
        is_code = not key.key and owner.name == FILES and not image.content.files
        if not (is_code and key.is_pinned) and not is_known(key, layer):
            return None
    by_path = {layer.wheels: layer for layer in wheels}
    # A build step makes the first layers of wheels, and all wheels of source distributions
    if (wheels and not own) or (
        stage and (not wheels or (_SDISTS in stage.layers and f"files/{_SDISTS}" not in by_path))
    ):
        return None
    return ChangedLayers(image, stored, last, owners, tuple(base), tuple(others), by_path, stage)


def _open_wheels(
    workspace: Workspace, change: ChangedLayers, report: Reporter, options: BuildOptions
) -> dict[Package, Wheel] | None:
    """Return the wheels of the recipe; None if one is missing, which the build reports."""
    if change.stage is None:
        return {}
    files = {file.sha256: file for file in required_files([change.image]).files}
    project, offline = workspace.project, options.offline
    with (
        open_fetcher(project, report, source=options.source, offline=offline) as fetcher,
        heartbeat(report, f"downloading packages of {change.image.name}"),
    ):
        transfers = {package: fetcher.ask(files[Sha256(package.sha256)]) for package in change.stage.wheels}
        for transfer in transfers.values():
            transfer.done.wait()
    paths = {package: transfer.path for package, transfer in transfers.items() if transfer.path}
    return wheel_layout.open_wheels(change.stage, paths) if len(paths) == len(transfers) else None


def _write(
    change: ChangedLayers, opened: Mapping[Package, Wheel], writer: _Writer, engine: Engine
) -> BuiltImage:
    """Write the new layers of an image, and load it."""
    image, wheels = change.image, iter(_wheel_layers(change, opened, writer, engine))
    others, layers = iter(change.others), []
    for key, owner in zip(image.layer_keys, change.owners, strict=True):
        if change.stage and owner.name == REQUIREMENTS:
            layers.append(next(wheels))
        elif key.key:
            layers.append(next(others))
        else:
            next(others)
            files = {
                file.target.lstrip("/"): (0o755 if file.is_executable else 0o644, file.read())
                for file in image.content.code
            }
            layers.append(writer.write(partial(wheel_layout.write_files, files=files)))
    composed = composed_image.compose(change.stored, [*change.base, *layers])
    new = {digest: path for digest, path in writer.new.items() if not change.stored.blob(digest).is_file()}
    composed_image.load(composed, new, image.names)
    found = engine.image(image.reference)
    if found is None or found.digest != composed.digest:
        raise BuildError(f"the engine did not keep image `{image.name}` as it was written")
    config, content = digest_of(composed.config), content_id(composed.config)
    return BuiltImage(image, config, composed.digest, found.bytes, content)


def _wheel_layers(
    change: ChangedLayers, wheels: Mapping[Package, Wheel], writer: _Writer, engine: Engine
) -> list[Layer]:
    """Return the layers of wheels in the order of the Dockerfile; those that changed are written."""
    if change.stage is None:
        return []
    stage = change.stage
    layers: dict[str, Layer] = {}
    codes: dict[str, dict[str, bytes]] = {}
    uncompiled: list[Wheel] = []
    for name, packages in stage.layers.items():
        if name == _SDISTS:
            layers |= {path: change.wheels[path] for path in (f"files/{name}", f"byte-code/{name}")}
            continue
        group = [wheels[package] for package in packages]
        files, byte_code = f"files/{name}", f"byte-code/{name}"
        old = change.stored_layer(files)
        same = [wheel for wheel in group if old and _has_wheel(old, wheel)]
        if old and len(same) == len(group) and _has_files(old, wheel_layout.layer_entries(group, name)):
            layers |= {path: change.wheels[path] for path in (files, byte_code)}
            continue
        layers[files] = writer.write(partial(wheel_layout.write_layer, wheels=group, name=name), files)
        layers[byte_code] = layers[files]
        known = change.stored_layer(byte_code)
        codes[name] = (
            known.read(*(path for wheel in same for path in wheel_layout.code_paths(wheel, stage.python)))
            if known
            else {}
        )
        uncompiled += [wheel for wheel in group if not known or wheel not in same]
    compiled = _compile(uncompiled, change, engine, writer.directory)
    for name, packages in stage.layers.items():
        if name in codes:
            path = f"byte-code/{name}"
            own = {
                place
                for package in packages
                for place in wheel_layout.code_paths(wheels[package], stage.python)
            }
            codes[name] |= {place: code for place, code in compiled.items() if place in own}
            write = partial(wheel_layout.write_byte_code, codes=codes[name], name=name)
            layers[path] = writer.write(write, path)
    return [*layers.values()]


def _replaces_others(change: ChangedLayers, wheels: Sequence[Wheel]) -> bool:
    """Return whether a wheel has a file of a component, or of a package that a build step made."""
    if change.stage is None:
        return False
    owners = [owner for owner in change.owners if owner.name != REQUIREMENTS]
    layers = [
        read_layer(change.stored.blob(layer.digest))
        for layer, owner in zip(change.others, owners, strict=True)
        if owner.name != FILES
    ]
    if _SDISTS in change.stage.layers and (built := change.stored_layer(f"files/{_SDISTS}")):
        layers.append(built)
    return any(layer.has_any(wheel.entries) for layer in layers for wheel in wheels)


def _has_wheel(layer: StoredLayer, wheel: Wheel) -> bool:
    """Return whether a layer has the files of a wheel, by the RECORD that was written with them."""
    path = wheel_layout.record_path(wheel)
    return layer.read(path) == {path: wheel.entries[path].data}


def _has_files(layer: StoredLayer, entries: Mapping[str, wheel_layout.LaidOutFile]) -> bool:
    """Return whether a layer has exactly these files, by their modes and sizes."""
    found = {path: (member.mode, member.size) for path, member in layer.members.items()}
    return found == {path: (entry.mode, entry.size) for path, entry in entries.items()}


def _compile(wheels: Sequence[Wheel], change: ChangedLayers, engine: Engine, log: Path) -> dict[str, bytes]:
    """Return the byte code of wheels by path, from the image's own Python in a container.

    Byte code differs between the patch releases of Python.
    """
    contents = {path: text for wheel in wheels for path, text in wheel_layout.sources(wheel).items()}
    if not contents:
        return {}
    root, script = f"{_DIRECTORY}/files", f"{_DIRECTORY}/layout-wheels"
    out, listing = f"{_DIRECTORY}/byte-code", f"{_DIRECTORY}/sources.txt"
    python = f"{wheel_layout.PREFIX}/bin/python"
    spec = ContainerSpec(
        image=change.digest,
        command=(python, "-I", "-S", script, "--compile", root, out, listing),
        environment={"SOURCE_DATE_EPOCH": str(EPOCH)},
        files={
            script: read_bytes(wheel_layout.SCRIPT),
            listing: "\n".join(contents).encode(),
            **{f"{root}/{path}": content for path, content in contents.items()},
        },
        memory=_COMPILE_MEMORY,
        image_name=change.image.name,
    )
    with engine.container(spec) as container:
        container.start(log / "compile.log")
        ended = container.wait(_COMPILE_SECONDS)
        if ended is None or ended.exit_code:
            names = ", ".join(sorted({wheel.file for wheel in wheels})[:5])
            raise BuildError(f"the byte code of {names} could not be made")
        return container.read(out)
