"""The program of a probe, run on this host: what it reports, and that it sends its token."""

import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.engine import probe_program
from bakehouse.engine.probe_program import ProbeResult

TOKEN = b"0123456789abcdef"
NEEDS_X86 = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="needs Linux on x86-64"
)


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A short path keeps the program small, as the one in a container is.
    path = tmp_path / "found"
    monkeypatch.setattr(probe_program, "RESULT", str(path))
    return path


def run(tmp_path: Path, address: str, port: int) -> None:
    program = tmp_path / probe_program.PATH
    program.write_bytes(probe_program.build("amd64", address, port, TOKEN))
    program.chmod(0o755)
    subprocess.run([program], check=True, timeout=20)


@NEEDS_X86
def test_a_program_sends_its_token_and_reports_disk_and_kernel(tmp_path: Path, result: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        run(tmp_path, *server.getsockname())
        connection, _ = server.accept()
        with connection:
            assert connection.recv(99) == TOKEN

    found = ProbeResult.of(result.read_bytes())
    assert found.boot_id == Path(probe_program.BOOT_ID).read_text().strip()
    assert abs(found.free - shutil.disk_usage("/").free) < 10**9


@NEEDS_X86
def test_a_program_that_cannot_connect_still_reports(tmp_path: Path, result: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()
    run(tmp_path, *closed)

    assert ProbeResult.of(result.read_bytes()).free > 0


def test_a_damaged_result_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes are not a result"):
        ProbeResult.of(b"abc")


def test_a_program_for_arm64_loads_all_constants() -> None:
    """Each call loads its number and arguments with movz and movk, and ends with svc."""
    program = probe_program.build("arm64", "192.0.2.1", 80, TOKEN)
    assert struct.unpack_from("<H", program, 18) == (183,)
    words = struct.unpack_from(f"<{(len(program) - 120) // 4}I", program, 120)
    calls: list[tuple[int, ...]] = []
    registers: dict[int, int] = {}
    for word in words:
        register, value = word & 31, word >> 5 & 0xFFFF
        if word >> 21 == 0xD2800000 >> 21:
            registers[register] = value
        elif word >> 21 == 0xF2A00000 >> 21:
            registers[register] |= value << 16
        else:
            assert word == 0xD4000001
            calls.append((registers[8], *(registers[number] for number in range(len(registers) - 1))))
            registers = {}
            if calls[-1][0] == 93:
                break

    def content(address: int, length: int) -> bytes:
        return program[address - 0x400000 :][:length]

    assert [call[0] for call in calls] == [43, 56, 64, 56, 63, 64, 198, 203, 206, 93]
    by_number = {call[0]: call for call in calls}
    assert content(by_number[43][1], 2) == b"/\0"
    assert content(calls[1][2], 7) == b"/found\0"
    assert content(calls[3][2], 32) == b"/proc/sys/kernel/random/boot_id\0"
    assert content(by_number[203][2], 8) == b"\x02\x00\x00\x50\xc0\x00\x02\x01"
    assert content(calls[8][2], 16) == TOKEN
    assert calls[6] == (198, socket.AF_INET, 1, 0)
