"""Program of a probe: an ELF file that only makes system calls, so that it runs in an empty image.

It writes the file system's free space and the kernel's boot id to a file, then connects to an address and
sends a token. All values are constants: a new process has the descriptors 0 to 2, so its files are 3 and 4,
and its socket is 5. The program ignores failed calls.
"""

import ipaddress
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

PATH = "probe"
RESULT = "/found"
"""File that receives the struct statfs64 of the root directory, and the boot id."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""File with an id that the kernel creates at its start."""
_RESULT, _BOOT_ID, _SOCKET = 3, 4, 5
_WRITE_NEW = 0o1101
"""O_WRONLY, O_CREAT and O_TRUNC of x86-64 and arm64."""
_LOAD_ADDRESS = 0x400000
_NO_SIGNAL = 0x4000
"""MSG_NOSIGNAL: without a connection, the call fails, but does not end the process."""
_STATFS_BYTES = 120
_ID_BYTES = 36
_EXECUTE_WRITE_READ = 7
_CODE_OFFSET = 64 + 56
"""The ELF header and one program header come first."""
Call = tuple[str, tuple[int, ...]]
"""Name and arguments of a system call."""


def build(architecture: str, address: str, port: int, token: bytes) -> bytes:
    """Return the program for `amd64` or `arm64`. It sends `token` to an IPv4 address and port."""
    machine, numbers, encode = _ARCHITECTURES[architecture]
    destination = struct.pack("<H", socket.AF_INET) + struct.pack(">H", port)
    destination += ipaddress.IPv4Address(address).packed + bytes(8)
    data = {
        "root": b"/\0",
        "result": RESULT.encode() + b"\0",
        "boot id": BOOT_ID.encode() + b"\0",
        "destination": destination,
        "token": token,
    }

    def calls(at: Mapping[str, int]) -> Sequence[Call]:
        return (
            ("statfs", (at["root"], at["space"])),
            ("openat", (0, at["result"], _WRITE_NEW, 0o644)),
            ("write", (_RESULT, at["space"], _STATFS_BYTES)),
            ("openat", (0, at["boot id"], 0, 0)),
            ("read", (_BOOT_ID, at["space"], _ID_BYTES)),
            ("write", (_RESULT, at["space"], _ID_BYTES)),
            ("socket", (socket.AF_INET, 1, 0)),
            ("connect", (_SOCKET, at["destination"], len(destination))),
            # Without a destination: its registers are 0 in a new process.
            ("sendto", (_SOCKET, at["token"], len(token), _NO_SIGNAL)),
            ("exit", (0,)),
        )

    def code(at: Mapping[str, int]) -> bytes:
        return b"".join(encode(numbers[name], arguments) for name, arguments in calls(at))

    # The length of the code does not depend on the addresses.
    position = _LOAD_ADDRESS + _CODE_OFFSET + len(code(dict.fromkeys((*data, "space"), 0)))
    addresses = {}
    for name, content in data.items():
        addresses[name] = position
        position += len(content)
    addresses["space"] = position
    body = code(addresses) + b"".join(data.values())
    return _headers(machine, _CODE_OFFSET + len(body)) + body


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Content of the program's file."""

    free: int
    """Free bytes of the file system with the root directory."""
    boot_id: str

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Read a result. Raises ValueError for other content."""
        if len(content) != _STATFS_BYTES + _ID_BYTES:
            message = f"{len(content)} bytes are not a result"
            raise ValueError(message)
        _, block, _, _, available = struct.unpack_from("<5Q", content)
        return cls(block * available, content[_STATFS_BYTES:].decode("ascii", "replace"))


def _headers(machine: int, size: int) -> bytes:
    identification = b"\x7fELF\x02\x01\x01" + bytes(9)
    entry = _LOAD_ADDRESS + _CODE_OFFSET
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, entry, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    # The memory after the end of the file receives the struct.
    segment = struct.pack(
        "<IIQQQQQQ", 1, _EXECUTE_WRITE_READ, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size + _STATFS_BYTES, 4096
    )
    return identification + header + segment


def _amd64(number: int, arguments: Sequence[int]) -> bytes:
    """Encode `mov` of constants to eax, edi, esi, edx and r10d, and `syscall`."""
    registers = (b"\xb8", b"\xbf", b"\xbe", b"\xba", b"\x41\xba")
    moves = zip(registers, (number, *arguments), strict=False)
    return b"".join(register + struct.pack("<I", value) for register, value in moves) + b"\x0f\x05"


def _arm64(number: int, arguments: Sequence[int]) -> bytes:
    """Encode `movz` and `movk` of constants to x8 and x0 to x3, and `svc #0`."""
    words = []
    for register, value in zip((8, 0, 1, 2, 3), (number, *arguments), strict=False):
        words.append(0xD2800000 | (value & 0xFFFF) << 5 | register)
        words.append(0xF2A00000 | (value >> 16) << 5 | register)
    return struct.pack(f"<{len(words) + 1}I", *words, 0xD4000001)


_CALLS = ("statfs", "openat", "read", "write", "socket", "connect", "sendto", "exit")
_ARCHITECTURES: Mapping[str, tuple[int, Mapping[str, int], Callable[[int, Sequence[int]], bytes]]] = {
    "amd64": (62, dict(zip(_CALLS, (137, 257, 0, 1, 41, 42, 44, 60), strict=True)), _amd64),
    "arm64": (183, dict(zip(_CALLS, (43, 56, 63, 64, 198, 203, 206, 93), strict=True)), _arm64),
}
"""ELF machine and numbers of system calls."""
ARCHITECTURES = frozenset(_ARCHITECTURES)
