"""Compressed layers: the same bytes on any number of cores, readable by any tool."""

import gzip
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.registry import compression
from bakehouse.registry.compression import BLOCK_BYTES, blocks, compressed, compressor
from bakehouse.registry.layer_cache import LayerCache, remove_unused
from bakehouse.registry.manifest import digest_of
from bakehouse.util import tempdir

CONTENT = bytes(range(256)) * 50_000
"""Three blocks and a part."""


@given(st.lists(st.binary(max_size=50)), st.integers(1, 20))
def test_blocks_do_not_depend_on_chunks(chunks: Sequence[bytes], size: int) -> None:
    cut = list(blocks(chunks, size))
    assert b"".join(cut) == b"".join(chunks)
    assert all(len(block) == size for block in cut[:-1])
    assert cut == list(blocks([b"".join(chunks)], size))


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_bytes_do_not_depend_on_the_number_of_cores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for cores in (1, 7):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        results.append(b"".join(compressed([CONTENT], compressor(name))))
    assert results[0] == results[1]


def test_gzip_reads_a_layer_of_many_members(tmp_path: Path) -> None:
    file = tmp_path / "layer.gz"
    file.write_bytes(b"".join(compressed([CONTENT], compressor("gzip"))))
    assert gzip.decompress(file.read_bytes()) == CONTENT
    subprocess.run(["gzip", "-t", file], check=True)


def test_few_blocks_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 192)
    taken = itertools.count()

    def endless() -> bytes:
        next(taken)
        return bytes(BLOCK_BYTES)

    stream = compressed(iter(endless, None), compressor("gzip"))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert next(taken) <= 34


def test_a_layer_is_compressed_once(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path, "gzip")
    diff_id = digest_of(CONTENT)
    assert cache.get(diff_id) is None
    added = cache.add([CONTENT])
    assert cache.get(diff_id) == added
    assert digest_of(added.path.read_bytes()) == added.digest
    assert added.path.stat().st_size == added.bytes


def test_a_layer_of_another_size_is_absent(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path, "gzip")
    added = cache.add([CONTENT])
    added.path.write_bytes(added.path.read_bytes()[:-1])
    assert cache.get(added.diff_id) is None
    assert cache.add([CONTENT]) == cache.get(added.diff_id) == added


def test_a_layer_that_is_removed_meanwhile_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LayerCache(tmp_path, "gzip")
    added = cache.add([CONTENT])
    monkeypatch.setattr(Path, "glob", lambda *_: [added.path])
    added.path.unlink()
    assert cache.get(added.diff_id) is None


def test_another_library_or_level_compresses_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diff_id = digest_of(CONTENT)
    LayerCache(tmp_path, "gzip").add([CONTENT])
    monkeypatch.setattr(compression, "_GZIP_LEVEL", 1)
    assert LayerCache(tmp_path, "gzip").get(diff_id) is None


def test_unused_layers_are_removed(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path, "gzip")
    old, new = cache.add([CONTENT]), cache.add([b"new"])
    os.utime(old.path, (0, 0))
    assert remove_unused(tmp_path, 60) == old.bytes
    assert cache.get(old.diff_id) is None
    assert cache.get(new.diff_id) == new


def test_an_interrupted_compression_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> Iterator[bytes]:
        yield CONTENT
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LayerCache(tmp_path, "gzip").add(interrupted())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_rest_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path, "gzip")
    directory = cache.add([CONTENT]).path.parent
    machine, _, _ = tempdir.run_id().split("-")
    (directory / f".{machine}-999999-1.abc").write_bytes(b"half")

    added = cache.add([CONTENT + CONTENT])

    assert {*directory.iterdir()} == {added.path, *directory.glob("*.*.*")}
    assert len([*directory.iterdir()]) == 2
