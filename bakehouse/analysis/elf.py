"""Tells how much of a program or shared library is symbol tables and debug information."""

import struct

MAGIC = b"\x7fELF"
TAIL = 1 << 18
"""How much of a file's end is looked at: the table of sections lies there."""
_HEADER = struct.Struct("<4sBB58x")
_WHERE = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<II16xQQ24x")
_NO_BITS = 8
_SYMBOLS = (b".symtab", b".strtab", b".debug", b".zdebug", b".gdb_index")


def symbol_bytes(head: bytes, tail: bytes, size: int) -> int:
    """The bytes of such sections in a 64-bit file of `size` bytes, given its first and its last ones.

    0 where its sections are not told within `tail`.
    """
    if len(head) < _WHERE.size or _HEADER.unpack_from(head) != (MAGIC, 2, 1):
        return 0
    table, entry_size, count, names_at = _WHERE.unpack_from(head)
    start = table - (size - len(tail))
    if (
        start < 0
        or entry_size != _SECTION.size
        or start + count * entry_size > len(tail)
        or names_at >= count
    ):
        return 0
    sections = [_SECTION.unpack_from(tail, start + place * entry_size) for place in range(count)]
    names = _Names(tail, sections[names_at][2] - (size - len(tail)))
    return sum(length for name, kind, _, length in sections if kind != _NO_BITS and names.is_of_symbols(name))


class _Names:
    """The names of sections, as far as they lie within a file's end."""

    def __init__(self, tail: bytes, start: int) -> None:
        self._tail, self._start = tail, start

    def is_of_symbols(self, place: int) -> bool:
        at = self._start + place
        return self._start >= 0 and any(self._tail.startswith(one, at) for one in _SYMBOLS)
