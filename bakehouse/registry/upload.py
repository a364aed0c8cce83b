"""Uploads of blobs through the registry API: in chunks, and resumed where a connection was cut."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

from bakehouse.fetch.http_client import HttpReply
from bakehouse.fetch.retry import Retries
from bakehouse.registry.client import Body, Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.util.oci import Digest

CHUNK_BYTES = 16 * 1024**2
"""Amazon ECR takes parts of 5 to 20 MiB (`UploadLayerPart`)."""
_STORED_PER_SECOND = 20e6
"""Bytes per second that a registry stores at least, before it confirms a whole blob."""
_RANGE = re.compile("(?:bytes=)?0-([0-9]{1,18})")
_LOST_UPLOAD = (HTTPStatus.NOT_FOUND, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)


class Sent(StrEnum):
    """How a blob got into its repository."""

    EXISTED = "already exists"
    MOUNTED = "mounted"
    UPLOADED = "uploaded"


@dataclass(frozen=True, slots=True)
class Blob:
    """Content to upload: a file, or bytes."""

    digest: Digest
    size: int
    content: Path | bytes

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the content."""
        if isinstance(self.content, bytes):
            return self.content[offset : offset + size]
        with self.content.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def is_damaged(self) -> bool:
        """Return whether the file no longer has the content of its digest."""
        if isinstance(self.content, bytes):
            return False
        with self.content.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != self.digest


class DamagedFileError(Exception):
    """A file to upload no longer has the content of its digest."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads to one repository."""

    repository: Repository
    moved: Callable[[int], None] = lambda count: None
    """Called with the number of bytes that left this machine; its exceptions end the upload."""
    report: Callable[[str], None] = lambda text: None

    def upload(self, blob: Blob, sources: Sequence[str] = ()) -> Sent:
        """Upload a blob unless the repository has it, or can mount it from one of `sources`, its neighbours.

        Raises RegistryError, or DamagedFileError.
        """
        is_small = blob.size <= CHUNK_BYTES
        state, location = Sent.EXISTED, None
        retries, offset, furthest = Retries(self.repository.retry_policy), 0, 0
        while True:
            try:
                if self.repository.has_blob(blob.digest, blob.size, attempts=1):
                    # After a failure, only the response to the last request was lost.
                    return state
                if location is not None:
                    location, offset = self._resumed(location)
                if location is None:
                    location, offset = self._start(blob, sources), 0
                    if location is None:
                        return Sent.MOUNTED
                    state, sources = Sent.UPLOADED, ()
                while not is_small and offset < blob.size:
                    location, offset = self._patch(location, blob, offset)
                    if offset > furthest:
                        # Bytes that were sent before are not progress.
                        retries.reset()
                        furthest = offset
                self._put(location, blob, blob.read(0, blob.size) if is_small else b"")
                return Sent.UPLOADED
            except RegistryError as error:
                # `docker-registry` answers 400 to bytes that were damaged during the transfer.
                is_lost = location is not None and (error.is_corrupted or error.status in _LOST_UPLOAD)
                if error.is_corrupted and blob.is_damaged():
                    raise DamagedFileError from error
                if not retries.add(
                    may_pass=error.may_pass or is_lost,
                    is_stalled=error.is_stalled,
                    at_least=error.retry_after,
                ):
                    raise
                delay = f" in {error.retry_after:.0f} s" if error.retry_after else ""
                self.report(f"upload interrupted, resuming{delay}: {error.answer}")
                retries.wait()
                if error.is_corrupted or is_small:
                    location = None

    def _start(self, blob: Blob, sources: Sequence[str]) -> str | None:
        """Return the location of a new upload; None if the registry has the blob now, as after a mount."""
        path = "blobs/uploads/"
        if sources:
            path += f"?mount={blob.digest}&from={sources[0]}"
        response = self.repository.request("POST", path, attempts=1)
        if response.status == HTTPStatus.CREATED:
            return None
        if location := response.headers.get("Location"):
            return location
        raise RegistryError(response.status, "", "the response to a new upload has no location")

    def _patch(self, location: str, blob: Blob, offset: int) -> tuple[str, int]:
        """Send one chunk; return the location of the next, and how many bytes the registry has."""
        chunk = blob.read(offset, CHUNK_BYTES)
        end = offset + len(chunk)
        headers = {"Content-Type": "application/octet-stream", "Content-Range": f"{offset}-{end - 1}"}
        response = self.repository.request("PATCH", location, headers, self._body(chunk), attempts=1)
        received = _received(response) if "Range" in response.headers else end
        if received <= offset:
            raise RegistryError(response.status, "", "the registry accepted a chunk, but did not store it")
        return response.headers.get("Location", location), received

    def _put(self, location: str, blob: Blob, content: bytes) -> None:
        mark = "&" if "?" in location else "?"
        headers = {"Content-Type": "application/octet-stream"}
        self.repository.request(
            "PUT",
            f"{location}{mark}digest={blob.digest}",
            headers,
            self._body(content),
            attempts=1,
            patience=blob.size / _STORED_PER_SECOND,
        )

    def _resumed(self, location: str) -> tuple[str | None, int]:
        """Return where to continue an upload, and how many bytes the registry has; None if it was lost."""
        try:
            response = self.repository.request("GET", location, attempts=1)
        except RegistryError as error:
            if error.may_pass:
                raise
            return None, 0
        # The earlier location may be for another offset.
        return response.headers.get("Location", location), _received(response)

    def _body(self, content: bytes) -> Body | None:
        # Without content, urllib3 sends `Content-Length: 0`.
        return Body(content, self.moved) if content else None


def _received(response: HttpReply) -> int:
    """Return how many bytes of an upload the registry has."""
    match = _RANGE.fullmatch(response.headers.get("Range", ""))
    # `0-0` means an empty upload.
    return int(match[1]) + 1 if match and match[1] != "0" else 0
