"""Debian package files of a base: their control fields, and an archive of what they install."""

import io
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from bakehouse.catalog.apt_lock import stanzas
from bakehouse.errors import BuildError
from bakehouse.util import deb
from bakehouse.util.files import open_file


@dataclass(frozen=True)
class DebFile:
    """A Debian package file."""

    path: Path

    @cached_property
    def fields(self) -> dict[str, str]:
        """The fields of its control file. Raises BuildError."""
        with self._archive("control.tar") as archive:
            try:
                content = archive.extractfile("./control")
                text = content.read().decode(errors="replace") if content else ""
                [(_, fields)] = stanzas(text)
                return fields
            except deb.DAMAGED as error:
                raise self._damaged() from error

    def installed_files(self) -> tarfile.TarFile:
        """Return the archive of the files that it installs. Raises BuildError."""
        return self._archive("data.tar")

    def _archive(self, name: Literal["control.tar", "data.tar"]) -> tarfile.TarFile:
        try:
            with open_file(self.path) as file:
                return tarfile.open(fileobj=io.BytesIO(deb.unpacked(file, name)))
        except deb.DAMAGED as error:
            raise self._damaged() from error

    def _damaged(self) -> BuildError:
        return BuildError(
            f"`{self.path.name}` is not a Debian package",
            hint="run `bake lock --upgrade` to lock another file of the package",
        )
