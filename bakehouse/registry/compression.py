"""Compression of layers to the same bytes on every machine.

A layer is cut into blocks of a fixed size, and each block becomes a gzip member or a zstd frame of its own.
So the result depends only on the layer, the block size and the library, not on the number of cores. Members
and frames may be concatenated (RFC 1952, section 2.2; RFC 8878, section 3).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

BLOCK_BYTES = 4 * 1024**2
"""Smaller blocks compress worse; larger ones cost memory: two per core are kept."""
_MAX_WORKERS = 32
"""Bounds the memory to 300 MB: each worker has a block, and its result waits for those before it."""
_GZIP_LEVEL = 4
_ZSTD_LEVEL = 3

Compress = Callable[[bytes], bytes]


def compressor(compression: str) -> Compress:
    """Return the compression of one block: `gzip` or `zstd`."""
    return {"gzip": _gzip, "zstd": _zstd}[compression]


def identifier(compression: str) -> str:
    """Return a name for everything that the compressed bytes depend on, besides the layer."""
    import deflate
    import zstandard

    library, level = {
        "gzip": (f"libdeflate-{deflate.__version__}", _GZIP_LEVEL),
        "zstd": (f"zstandard-{zstandard.__version__}", _ZSTD_LEVEL),
    }[compression]
    return f"{library}-{level}-{BLOCK_BYTES}"


def compressed(chunks: Iterable[bytes], compress: Compress) -> Iterator[bytes]:
    """Compress a stream on all cores, in order, with only a few blocks in memory."""
    workers = min(os.cpu_count() or 1, _MAX_WORKERS)
    pending: deque[Future[bytes]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="compress")
    try:
        for block in blocks(chunks):
            pending.append(pool.submit(compress, block))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def blocks(chunks: Iterable[bytes], size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Cut a stream into blocks of `size` bytes; the last may be shorter. An empty stream is one block."""
    buffer = bytearray()
    is_empty = True
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            is_empty = False
            del buffer[:size]
    if buffer or is_empty:
        yield bytes(buffer)


def _gzip(block: bytes) -> bytes:
    import deflate

    # Its header has no time and no name.
    return bytes(deflate.gzip_compress(block, _GZIP_LEVEL))


def _zstd(block: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(block)
