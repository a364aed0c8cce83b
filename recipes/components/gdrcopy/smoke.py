"""GDRCopy's library as the image has it."""

import ctypes


def installed() -> str:
    """The library knows its first two numbers."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL("libgdrapi.so.2").gdr_runtime_get_version(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"
