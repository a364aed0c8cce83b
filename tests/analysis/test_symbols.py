"""Symbol tables and debug information of programs and libraries."""

import struct

from bakehouse.analysis.layers import symbol_bytes

NAMES = b"\0.text\0.symtab\0.debug_info\0.shstrtab\0"
SIZES = {b".text": 4000, b".symtab": 300, b".debug_info": 50}


def program(*, kind: int = 1) -> bytes:
    """A 64-bit file with these sections, its table of sections last."""
    sections = [(0, 0, 0, 0)]
    body = b""
    for name, size in SIZES.items():
        sections.append((NAMES.index(name), kind, 64 + len(body), size))
        body += bytes(size)
    sections.append((NAMES.index(b".shstrtab"), 3, 64 + len(body), len(NAMES)))
    body += NAMES
    table = b"".join(struct.pack("<IIQQQQIIQQ", name, type_, 0, 0, at, size, 0, 0, 0, 0)
                     for name, type_, at, size in sections)  # fmt: skip
    head = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack(
        "<QIHHHHHH", 64 + len(body), 0, 64, 0, 0, 64, 5, 4
    )
    return head + body + table


def test_symbols_and_debug_information_are_summed_up() -> None:
    whole = program()

    assert symbol_bytes(whole[:64], whole, len(whole)) == 350


def test_the_end_of_a_file_is_enough() -> None:
    whole = program()

    assert symbol_bytes(whole[:64], whole[-400:], len(whole)) == 350


def test_unknown_sections_are_not_guessed() -> None:
    whole = program()

    assert symbol_bytes(whole[:64], whole[-100:], len(whole)) == 0


def test_a_section_without_bytes_in_the_file_has_no_size() -> None:
    whole = program(kind=8)

    assert symbol_bytes(whole[:64], whole, len(whole)) == 0


def test_other_files_have_none() -> None:
    text = b"#!/bin/sh\n" * 10

    assert symbol_bytes(text[:64], text, len(text)) == 0
    assert symbol_bytes(b"\x7fELF", b"\x7fELF", 4) == 0
