"""Check of GDRCopy. The library does not report the last number of its version."""

import ctypes


def check_can_be_loaded() -> None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL("libgdrapi.so.2").gdr_runtime_get_version(ctypes.byref(major), ctypes.byref(minor))
    assert major.value == 2, f"{major.value}.{minor.value}"
