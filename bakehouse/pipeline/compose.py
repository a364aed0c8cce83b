"""Images in which only wheels or training code changed: their layers are written here, without a build."""

import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import file_digest
from importlib.util import source_hash
from pathlib import Path
from typing import IO

from bakehouse.builder import up_to_date
from bakehouse.builder.build_context import BuildOptions
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.code_copies import write_code
from bakehouse.catalog.python_lock import Package
from bakehouse.engine import usage_lock
from bakehouse.engine.daemon_info import run_program
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import BuildError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import required_files
from bakehouse.layers import composed_image, wheel_layout
from bakehouse.layers.composed_image import Layer
from bakehouse.layers.wheel_layout import Wheel
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
_COMPILE_MEMORY = 4 << 30
_COMPILE_SECONDS = 1800.0
Compile = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Compiles sources by path to byte code by path."""


class NeedsBuildError(Exception):
    """A layer that only a build step can make; the text is the reason."""


@dataclass(frozen=True, slots=True)
class LayerWriter:
    """Writes the new layers of an image to a directory."""

    workspace: Workspace
    image: Image
    directory: Path
    stored: Callable[[Digest], Path | None]
    """Returns the file of an old layer, compressed or not; None if it is not here."""
    compile: Compile
    report: Reporter
    options: BuildOptions
    new: dict[Digest, Path] = field(default_factory=dict)

    def layers(self, old: Sequence[Layer], names: Sequence[str]) -> list[Layer]:
        """Return all layers, from the old ones and what those above the base were made from.

        Raises NeedsBuildError if a build step has to make one, BuildError for an invalid wheel.
        """
        image, stage, count = self.image, self.image.own_packages, len(old) - len(names)
        known = {name: layer for name, layer in zip(names, old[count:], strict=True) if name}
        old_paths = {layer.wheels: layer.digest for layer in old if layer.wheels}
        paths = iter(stage.copied if stage else ())
        layers, wheels = [*old[:count]], dict[Package, Wheel]()
        for name, key in zip(image.layer_names, image.layer_keys, strict=True):
            path = next(paths).rstrip("/") if stage and key.stages[:1] == (stage.name,) else ""
            if name in known:
                layers.append(replace(known[name], wheels=path))
            elif stage and path and key.is_pinned and not path.endswith(SDISTS):
                wheels = wheels or self._open_wheels(stage)
                kind, _, group = path.partition("/")
                files = [wheels[package] for package in stage.layers[group]]
                write = partial(wheel_layout.write_layer, wheels=files, name=group)
                if kind != "files":
                    codes = self._byte_code(files, stage.python, old_paths.get(path))
                    write = partial(wheel_layout.write_byte_code, codes=codes, name=group)
                layers.append(self._write(write, path))
            elif image.content.code and not (image.content.files or key.key) and key.is_pinned:
                code = {
                    file.target.lstrip("/"): (0o755 if file.is_executable else 0o644, file.read())
                    for file in image.content.code
                }
                layers.append(self._write(partial(wheel_layout.write_files, files=code)))
            else:
                raise NeedsBuildError(f"the layer of `{next(iter(key.stages), 'run')}` changed")
        return layers

    def _write(self, write: Callable[[IO[bytes]], object], wheels: str = "") -> Layer:
        path = self.directory / f"{len(self.new)}.tar"
        with path.open("w+b") as file:
            write(file)
            file.flush()
            file.seek(0)
            digest = file_digest(file, "sha256")
        layer = Layer(Digest(f"sha256:{digest.hexdigest()}"), path.stat().st_size, wheels)
        self.new[layer.digest] = path
        return layer

    def _open_wheels(self, stage: Stage) -> dict[Package, Wheel]:
        """Return the wheels of the recipe."""
        files = {file.sha256: file for file in required_files([self.image]).files}
        project, offline = self.workspace.project, self.options.offline
        with (
            open_fetcher(project, self.report, source=self.options.source, offline=offline) as fetcher,
            heartbeat(self.report, f"downloading packages of {self.image.name}"),
        ):
            transfers = {package: fetcher.ask(files[Sha256(package.sha256)]) for package in stage.wheels}
            for transfer in transfers.values():
                transfer.done.wait()
        paths = {package: transfer.path for package, transfer in transfers.items() if transfer.path}
        if len(paths) < len(transfers):
            message = "a package could not be downloaded"
            raise NeedsBuildError(message)
        return wheel_layout.open_wheels(stage, paths)

    def _byte_code(self, wheels: Sequence[Wheel], python: str, old: Digest | None) -> dict[str, bytes]:
        """Return the byte code of wheels by path; that of unchanged sources is in the old layer."""
        contents = {path: text for wheel in wheels for path, text in wheel_layout.sources(wheel).items()}
        sources = {wheel_layout.code_path(path, python): path for path in contents}
        codes: dict[str, bytes] = {}
        if old and (stored := self.stored(old)):
            with tarfile.open(stored) as archive:
                for member in archive:
                    source = sources.get(member.name)
                    if source and (file := archive.extractfile(member)):
                        code = file.read()
                        # A different minor version of Python has other hashes
                        if code[8:16] == source_hash(contents[source]):
                            codes[member.name] = code
        new = {path: contents[path] for code, path in sources.items() if code not in codes}
        return {**codes, **(self.compile(new) if new else {})}


def compose_images(
    workspace: Workspace, images: Iterable[Image], engine: Engine, report: Reporter, options: BuildOptions
) -> None:
    """Write and load each image that differs from its last build only in wheels and training code.

    The engine then has the image that a build would give. Raises BuildError for wheels that cannot be
    installed.
    """
    project = workspace.project
    for image in images:
        if up_to_date.find_up_to_date([image], project, engine):
            continue
        last = up_to_date.last_build(image, project, engine)
        if last is None:
            continue
        digest, names = last
        with usage_lock.engine_in_use(), private_directory(project.state) as directory:
            stored = engine.stored_files(digest)
            old = composed_image.stored_layers(stored) if stored else None
            if stored is None or old is None or len(old) < len(names):
                continue
            python = local_python(image)
            container = partial(_compile, image=image, last=digest, engine=engine, log=directory)
            local = partial(wheel_layout.byte_code, python=python, directory=directory)
            compiler: Compile = local if python else container
            writer = LayerWriter(workspace, image, directory, stored.blob, compiler, report, options)
            try:
                composed = composed_image.compose(stored, writer.layers(old, names))
            except NeedsBuildError:
                continue
            new = {layer: path for layer, path in writer.new.items() if not stored.blob(layer).is_file()}
            composed_image.load(composed, new, image.names)
            found = engine.image(image.reference)
            if found is None or found.digest != composed.digest:
                raise BuildError(f"the engine did not keep image `{image.name}` as it was written")
            config, content = digest_of(composed.config), content_id(composed.config)
            built = BuiltImage(image, config, composed.digest, found.bytes, content)
            written = writer.new.keys() - {layer.digest for layer in old}
            size = format_bytes(sum(writer.new[layer].stat().st_size for layer in written))
        write_code(image, project.output)
        up_to_date.record_build(built, project)
        report(f"{image.name}: wrote {format_count(len(written), 'layer')} ({size}) without a build step")


def local_python(image: Image) -> str:
    """Return a Python of this machine whose byte code is that of the image's; empty without one.

    Byte code differs between the patch releases of Python.
    """
    python = image.own_packages.python if image.own_packages else ""
    debs = [deb.version for deb in image.debs if deb.name == f"python{python}-minimal"]
    match = re.match(rf"{re.escape(python)}\.\d+(?=-)", debs[0]) if python and debs else None
    query = ("-I", "-S", "-c", "import platform; print(platform.python_version())")
    for program in (f"/usr/bin/python{python}", sys.executable):
        if match and run_program(program, *query).out.strip() == match[0]:
            return program
    return ""


def _compile(
    contents: Mapping[str, bytes], *, image: Image, last: Digest, engine: Engine, log: Path
) -> Mapping[str, bytes]:
    """Compile in a container, with the image's own Python."""
    root, script = f"{_DIRECTORY}/files", f"{_DIRECTORY}/layout-wheels"
    out, listing = f"{_DIRECTORY}/byte-code", f"{_DIRECTORY}/sources.txt"
    python = f"{wheel_layout.PREFIX}/bin/python"
    spec = ContainerSpec(
        image=last,
        command=(python, "-I", "-S", script, "--compile", root, out, listing),
        environment={"SOURCE_DATE_EPOCH": str(EPOCH)},
        files={
            script: read_bytes(wheel_layout.SCRIPT),
            listing: "\n".join(contents).encode(),
            **{f"{root}/{path}": content for path, content in contents.items()},
        },
        memory=_COMPILE_MEMORY,
        image_name=image.name,
    )
    with engine.container(spec) as container:
        container.start(log / "compile.log")
        ended = container.wait(_COMPILE_SECONDS)
        if ended is None or ended.exit_code:
            raise BuildError(f"the byte code of the packages of `{image.name}` could not be made")
        return container.read(out)
