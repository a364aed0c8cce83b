"""Pins: checksums of vendors' files and digests of their images.

`pins.yaml` in a recipe directory is made by `bake lock` for a project, so that the catalogue need not change.
That of the catalogue has what public files agree on: a wrong value fits no bytes of the vendor, and the build
fails. The digest of an image replaces that of its component, because a project may follow a tag that has
moved. The checksum of a file only replaces an unknown one.
"""

import re
from collections import abc
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.catalog.component import Artifact, BaseSource, Component, Registries, VariantSpec
from bakehouse.errors import Location, Problems, RecipeError
from bakehouse.util import file_format
from bakehouse.util.files import is_file, read_text, write_whole
from bakehouse.util.oci import Digest, Sha256
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Mapping, Node, Scalar, load

FILE = "pins.yaml"
_FORMAT = 1
IMAGES, FILES, LOOKED = "images", "files", "looked"
"""Sections of the file; the last says where and when the value of other names was looked for in vain."""
_HEADING = "# Images and files of vendors that components do not pin; made by `bake lock`\n"
DIGEST, SHA256 = "digest", "sha256"
_VALUES = {DIGEST: re.compile("sha256:[0-9a-f]{64}"), SHA256: re.compile("[0-9a-f]{64}")}
_DAY = re.compile("20[0-9]{2}-[01][0-9]-[0-3][0-9]")
_BYTES = re.compile("[1-9][0-9]{0,17}")
_HINT = "restore the file from version control, or delete the entry and run `bake lock`"


@dataclass(frozen=True, slots=True)
class Pin:
    """The digest of an image, or the sha256 of a file."""

    value: str
    location: Location
    bytes: int | None = None
    """Size of a file."""
    size_location: Location | None = None
    agree: int = 0
    """Number of public files with this value, if neither a registry nor a server of the vendor gave it."""
    seen: str = ""
    """Day on which they were read."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of recipe directories."""

    images: abc.Mapping[str, Pin]
    """By reference with host; images of Docker Hub have none."""
    files: abc.Mapping[str, Pin]
    """By `Artifact.pin_name`."""
    looked: abc.Mapping[str, str] = field(default_factory=dict)
    """Other names, with where and when their values were looked for."""

    def __bool__(self) -> bool:
        return bool(self.images or self.files)


def read_pins(roots: Iterable[Path], problems: Problems) -> Pins:
    """Read the pins of recipe directories; those of later ones replace earlier ones."""
    images: dict[str, Pin] = {}
    files: dict[str, Pin] = {}
    looked: dict[str, str] = {}
    for path in (root / FILE for root in roots):
        if not is_file(path):
            continue
        try:
            fields = Fields(_sections(path), f"`{FILE}`", problems)
        except RecipeError as error:
            problems.extend(error.diagnostics)
            continue
        for name, node in fields.pairs(IMAGES):
            if isinstance(node, Scalar):
                images[name.text] = _pin(fields, DIGEST, node.text, node.location)
            else:
                images[name.text] = _entry(fields.inner(node, f"`{name.text}`"), DIGEST)
        for name, node in fields.pairs(FILES):
            files[name.text] = _entry(fields.inner(node, f"`{name.text}`"), SHA256)
        looked |= {name.text: where.text for name, where in fields.text_pairs(LOOKED)}
        fields.finish()
    return Pins(images, files, looked)


def _entry(entry: Fields, key: str) -> Pin:
    """Return the pin of a mapping. `bake lock` knows the size of a file; a person knows which files agree."""
    pin = _pin(entry, key, entry.text(key, required=True), entry.place(key))
    agree = entry.number("agree", 0)
    seen = entry.text("seen", required=agree > 0)
    if seen and not _DAY.fullmatch(seen):
        entry.report(f"`{seen}` is not a date", entry.place("seen"), hint="write it as 2026-11-29")
    size = entry.text("bytes", required=key == SHA256 and not agree)
    if size and not _BYTES.fullmatch(size):
        entry.report(f"`{size}` is not a valid number of bytes", entry.place("bytes"), hint=_HINT)
        size = ""
    entry.finish()
    number, location = (int(size), entry.place("bytes")) if size else (None, None)
    return replace(pin, bytes=number, size_location=location, agree=agree, seen=seen)


def _pin(fields: Fields, key: str, value: str, location: Location) -> Pin:
    if value and not _VALUES[key].fullmatch(value):
        fields.report(f"`{value}` is not a {key}", location, hint=_HINT)
    return Pin(value, location)


def _sections(path: Path) -> Node:
    """Return the sections of a file that have entries: users may delete all of them."""
    text = read_text(path, errors="replace")
    with file_format.reading(path):
        file_format.require_known_line(text, _FORMAT)
    lines = text.splitlines()
    if all(not line.strip() or line.lstrip().startswith("#") for line in lines):
        return Mapping((), Location(path, 1, 1))
    node = load(path)
    if not isinstance(node, Mapping):
        return node
    entries = (entry for entry in node.entries if not (isinstance(entry[1], Scalar) and not entry[1].text))
    return Mapping(tuple(entries), node.location)


def pinned(component: Component, pins: Pins) -> Component:
    """Return a component with the digests and checksums of pins."""
    releases = tuple(
        replace(
            release,
            variants=tuple(
                replace(variant, spec=spec)
                if (spec := _pinned_spec(variant.spec, component.registries, pins)) is not variant.spec
                else variant
                for variant in release.variants
            ),
        )
        for release in component.releases
    )
    return component if releases == component.releases else replace(component, releases=releases)


def _pinned_spec(spec: VariantSpec, registries: Registries | None, pins: Pins) -> VariantSpec:
    artifacts = tuple(_pinned_artifact(artifact, pins) for artifact in spec.artifacts)
    base = _pinned_base(spec.base, registries, pins) if spec.base else None
    if artifacts == spec.artifacts and base == spec.base:
        return spec
    return replace(spec, artifacts=artifacts, base=base)


def _pinned_artifact(artifact: Artifact, pins: Pins) -> Artifact:
    pin = None if artifact.sha256 else pins.files.get(artifact.pin_name)
    if pin is None:
        return artifact
    size = artifact.bytes or pin.bytes
    return replace(
        artifact, sha256=pin.value, location=pin.location, bytes=size, size_location=pin.size_location
    )


def _pinned_base(source: BaseSource, registries: Registries | None, pins: Pins) -> BaseSource:
    if pin := _image_pin(source.reference, registries, pins):
        source = replace(source, digest=pin.value, digest_location=pin.location)
    reference = source.build_reference.partition("@")[0]
    if pin := _image_pin(reference, registries, pins):
        source = replace(source, build_reference=f"{reference}@{pin.value}", build_location=pin.location)
    return source


def _image_pin(reference: str, registries: Registries | None, pins: Pins) -> Pin | None:
    """Return the pin of an image. The registries of all regions have the same images."""
    references = with_hosts(reference, registries) if reference else ()
    return next((pins.images[name] for name in references if name in pins.images), None)


def with_hosts(reference: str, registries: Registries | None) -> tuple[str, ...]:
    """Return an image with the registry of each region; unchanged if its reference contains the registry."""
    return tuple(f"{host}/{reference}" for host in registries.hosts.values()) if registries else (reference,)


class PinsFile:
    """The pins of one recipe directory. Each new one is written at once, because the next may take hours."""

    def __init__(self, directory: Path) -> None:
        problems = Problems()
        pins = read_pins([directory], problems)
        problems.raise_as(RecipeError)
        self._path = directory / FILE
        self._images, self._files = dict(pins.images), dict(pins.files)
        self._looked = pins.looked

    def record_image(self, reference: str, digest: Digest, others: Iterable[str]) -> None:
        """Record the digest of an image, instead of that of the same image in `others`, its other regions."""
        for other in others:
            self._images.pop(other, None)
        self._images[reference] = Pin(digest, Location(self._path, 1, 1))
        self._write()

    def record_file(self, artifact: Artifact, sha256: Sha256, size: int) -> None:
        """Record the checksum and the size of an artifact."""
        self._files[artifact.pin_name] = Pin(sha256, Location(self._path, 1, 1), size)
        self._write()

    def _write(self) -> None:
        images = [
            f"  {name}: {_mapping(DIGEST, pin) if pin.agree else pin.value}\n"
            for name, pin in sorted(self._images.items())
        ]
        files = [f"  {name}: {_mapping(SHA256, pin)}\n" for name, pin in sorted(self._files.items())]
        looked = [f"  {name}: {text}\n" for name, text in sorted(self._looked.items())]
        sections = [(IMAGES, images), (FILES, files), (LOOKED, looked)]
        text = "".join(f"{name}:\n{''.join(lines)}" for name, lines in sections if lines)
        write_whole(self._path, _HEADING + text)


def _mapping(key: str, pin: Pin) -> str:
    fields = {key: pin.value, "bytes": pin.bytes, "agree": pin.agree, "seen": pin.seen}
    return f"{{{', '.join(f'{name}: {value}' for name, value in fields.items() if value)}}}"
