"""Uploads of blobs through the registry API: in chunks, and resumed where a connection was cut."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

from bakehouse.registry.client import Body, Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.util.oci import Digest

CHUNK_BYTES = 16 * 1024**2
"""Amazon ECR takes parts of 5 to 20 MiB (`UploadLayerPart`)."""
_STORED_PER_SECOND = 20e6
"""Bytes per second that a registry stores at least, before it confirms a whole blob."""
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
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


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads to one repository."""

    repository: Repository
    moved: Callable[[int], None] = lambda count: None
    """Called with the number of bytes that left this machine; its exceptions end the upload."""
    report: Callable[[str], None] = lambda text: None

    def upload(self, blob: Blob, sources: Sequence[str] = ()) -> Sent:
        """Upload a blob unless the repository has it, or can mount it from one of `sources`, its neighbours.

        Raises RegistryError.
        """
        if self.repository.has_blob(blob.digest, blob.size):
            return Sent.EXISTED
        location = self._start(blob, sources)
        if location is None:
            return Sent.MOUNTED
        failures, stalls, offset = 0, 0, 0
        while True:
            try:
                if blob.size <= CHUNK_BYTES:
                    self._put(location, blob, blob.read(0, blob.size))
                    return Sent.UPLOADED
                while offset < blob.size:
                    location, offset = self._patch(location, blob, offset)
                    failures = stalls = 0
                self._put(location, blob, b"")
                return Sent.UPLOADED
            except RegistryError as error:
                failures, stalls = failures + 1, stalls + error.is_stalled
                is_last = failures >= self.repository.retry_policy.attempts
                if stalls > 1 or not self._may_continue(error):
                    raise
                if not is_last:
                    self.report(f"upload interrupted, resuming: {error.text}")
                    is_last = not self.repository.retry_policy.wait(failures - 1, error.retry_after)
                if self.repository.has_blob(blob.digest, blob.size):
                    # The response to the last request was lost.
                    return Sent.UPLOADED
                if is_last:
                    raise
                is_lost = error.is_corrupted or error.status == HTTPStatus.NOT_FOUND
                received = None if is_lost else self._received(location)
                if received is None:
                    location, offset = self._start(blob, ()) or "", 0
                else:
                    offset = received

    def _start(self, blob: Blob, sources: Sequence[str]) -> str | None:
        """Return the location of a new upload; None if the blob was mounted instead."""
        path = "blobs/uploads/"
        if sources:
            path += f"?mount={blob.digest}&from={sources[0]}"
        response = self.repository.request("POST", path)
        return None if response.status_code == HTTPStatus.CREATED else response.headers["Location"]

    def _patch(self, location: str, blob: Blob, offset: int) -> tuple[str, int]:
        chunk = blob.read(offset, CHUNK_BYTES)
        end = offset + len(chunk)
        headers = {"Content-Type": "application/octet-stream", "Content-Range": f"{offset}-{end - 1}"}
        response = self.repository.request("PATCH", location, headers, self._body(chunk), attempts=1)
        received = _RANGE.fullmatch(response.headers.get("Range", ""))
        return response.headers.get("Location", location), int(received[1]) + 1 if received else end

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

    def _received(self, location: str) -> int | None:
        """Return how many bytes of an upload the registry has; None if it no longer has the upload."""
        try:
            response = self.repository.request("GET", location)
        except RegistryError as error:
            if error.status is not None and error.status < 500:
                return None
            raise
        match = _RANGE.fullmatch(response.headers.get("Range", ""))
        return int(match[1]) + 1 if match and match[1] != "0" else 0

    @staticmethod
    def _may_continue(error: RegistryError) -> bool:
        # The registry of the distribution project answers 400 to bytes that were damaged on the way.
        return error.may_pass or error.status in _LOST_UPLOAD or error.is_corrupted

    def _body(self, content: bytes) -> Body | None:
        # Without content, requests sends `Content-Length: 0`.
        return Body(content, self.moved) if content else None
