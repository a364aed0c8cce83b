"""METADATA of wheels on an index, from the metadata file of PEP 658 or from parts of the wheel."""

import hashlib
import io
from typing import TYPE_CHECKING, Any

from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.http_client import HttpClient, TransferSpeed
from bakehouse.util import archive_reader
from bakehouse.util.format import format_bytes

if TYPE_CHECKING:
    from bakehouse.fetch.simple_index import IndexFile

_MAX_METADATA_BYTES = 4 * 10**6
_MAX_READ_BYTES = 16 * 10**6
_BUFFER = 1 << 16


def read(web: HttpClient, link: "IndexFile") -> str:
    """Return the METADATA of a wheel. Raises SourceError."""
    if link.has_metadata:
        with web.open(f"{link.url}.metadata", accept="text/plain, */*;q=0.5") as response:
            text = response.text(_MAX_METADATA_BYTES)
        if link.metadata_sha256 and hashlib.sha256(text.encode()).hexdigest() != link.metadata_sha256:
            reason = f"its metadata of `{link.file}` does not have the checksum of its page"
            raise SourceError(reason)
        return text
    if link.size is None:
        reason = f"states neither the metadata nor the size of `{link.file}`"
        raise SourceError(reason)
    try:
        with archive_reader.open_zip(
            io.BufferedReader(_RemoteFile(web, link.url, link.size), _BUFFER)
        ) as archive:
            [member] = [info for info in archive.infolist() if _is_metadata(info.filename)]
            if member.file_size > _MAX_METADATA_BYTES:
                reason = f"its metadata of `{link.file}` is larger than {format_bytes(_MAX_METADATA_BYTES)}"
                raise SourceError(reason)
            return archive_reader.zip_content(archive, member, _MAX_METADATA_BYTES).decode(errors="replace")
    except SourceError:
        raise
    except Exception as error:
        # Exceptions of zipfile, struct, zlib, bz2 and lzma, and MemoryError for an absurd size
        reason = f"has no readable wheel `{link.file}`"
        raise SourceError(reason) from error


def _is_metadata(name: str) -> bool:
    return name.count("/") == 1 and name.endswith(".dist-info/METADATA")


class _RemoteFile(io.RawIOBase):
    """A file on a server. Only the parts that are read are transferred."""

    def __init__(self, web: HttpClient, url: str, size: int) -> None:
        super().__init__()
        self._web, self._url, self._size = web, url, size
        self._position = self._total = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._position))
        self._total += count
        if self._total > _MAX_READ_BYTES:
            reason = f"has no metadata in {format_bytes(_MAX_READ_BYTES)} of `{self._url.rpartition('/')[2]}`"
            raise SourceError(reason)
        data, speed = bytearray(), TransferSpeed()
        if count:
            with self._web.open(self._url, start=self._position) as response:
                if response.start != self._position:
                    reason = "does not send parts of files"
                    raise SourceError(reason)
                for chunk in response.chunks():
                    speed.add(len(chunk))
                    data += chunk
                    if len(data) >= count:
                        break
        read = min(count, len(data))
        view[:read] = data[:read]
        self._position += read
        return read
