"""Fake facts of Linux about a bridge."""

from pathlib import Path


def bridge(directory: Path, address_type: str) -> Path:
    """A machine's interfaces, of which one is the bridge `br0`; of type 3 is an address that it was given."""
    interfaces = directory / "net"
    (interfaces / "br0").mkdir(parents=True)
    (interfaces / "br0/addr_assign_type").write_text(f"{address_type}\n")
    (interfaces / "br0/address").write_text("02:00:00:00:00:01\n")
    return interfaces
