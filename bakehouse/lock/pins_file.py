"""Writer of a project's `pins.yaml`: the digests and checksums that `bake lock` found out."""

from collections.abc import Iterable
from pathlib import Path

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.pins import FILE, FILES, IMAGES, read_pins
from bakehouse.errors import Problems, RecipeError
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest, Sha256

_HEADING = "# Images and files of vendors that components do not pin; made by `bake lock`\n"


class PinsFile:
    """The pins of one recipe directory. Each new one is written at once, because the next may take hours."""

    def __init__(self, directory: Path) -> None:
        problems = Problems()
        pins = read_pins([directory], problems)
        problems.raise_as(RecipeError)
        self._path = directory / FILE
        self._images = {name: pin.value for name, pin in pins.images.items()}
        self._files = {name: (pin.value, pin.bytes) for name, pin in pins.files.items()}

    def record_image(self, reference: str, digest: Digest, others: Iterable[str]) -> None:
        """Record the digest of an image, instead of that of the same image in `others`, its other regions."""
        for other in others:
            self._images.pop(other, None)
        self._images[reference] = digest
        self._write()

    def record_file(self, artifact: Artifact, sha256: Sha256, size: int) -> None:
        """Record the checksum and the size of an artifact."""
        self._files[artifact.pin_name] = sha256, size
        self._write()

    def _write(self) -> None:
        images = [f"  {name}: {digest}\n" for name, digest in sorted(self._images.items())]
        files = [
            f"  {name}: {{sha256: {sha256}, bytes: {size}}}\n"
            for name, (sha256, size) in sorted(self._files.items())
        ]
        sections = [(IMAGES, images), (FILES, files)]
        text = "".join(f"{name}:\n{''.join(lines)}" for name, lines in sections if lines)
        write_whole(self._path, _HEADING + text)
