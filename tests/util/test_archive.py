"""Archives with the same bytes on every machine."""

import gzip as standard
import io
import tarfile

from bakehouse.util.archive import gzip, tar
from bakehouse.util.oci import EPOCH

TREE = {"b/run": (b"#!/bin/sh\n", 0o755), "a": (b"data", 0o644), "b/link": (b"run", 0)}


def test_an_archive_has_all_directories_files_and_links_with_one_time() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar(TREE))) as archive:
        members = archive.getmembers()
        assert [(member.name, member.mode) for member in members] == [
            ("b", 0o755),
            ("a", 0o644),
            ("b/link", 0o777),
            ("b/run", 0o755),
        ]
        assert {member.mtime for member in members} == {EPOCH}
        assert archive.getmember("b/link").linkname == "run"
        content = archive.extractfile("b/run")
        assert content is not None
        assert content.read() == b"#!/bin/sh\n"


def test_the_order_of_a_tree_does_not_change_its_archive() -> None:
    assert tar(dict(reversed(TREE.items()))) == tar(TREE)


def test_packed_data_is_stored_without_a_time() -> None:
    packed = gzip(b"data" * 100)
    assert standard.decompress(packed) == b"data" * 100
    assert b"data" * 100 in packed
    assert packed[4:8] == bytes(4)
