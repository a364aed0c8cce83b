"""Locations of keys in a TOML file, found by text search because tomllib keeps no positions."""

from pathlib import Path

from bakehouse.errors import Location


def key_location(path: Path, key: str, table: str) -> Location:
    """The spot of a key of a table, or of one below it, else of the table, else the file's beginning."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    inside = False
    found = None
    for number, line in enumerate(lines, 1):
        words = line.strip()
        if words.startswith("["):
            header = words.strip("[] \t").replace('"', "").replace("'", "")
            inside = header == table or header.startswith(f"{table}.")
            if inside and found is None:
                found = _spot(path, number, line, header.split(".")[-1])
        name = line.split("=")[0].strip().strip("\"'")
        if inside and name == key:
            return _spot(path, number, line, key)
    if found is None and "." in table:
        # It may be an inline table of the one above.
        above, _, name = table.rpartition(".")
        return key_location(path, name, above)
    return found or Location(path, 1, 1)


def _spot(path: Path, number: int, line: str, key: str) -> Location:
    return Location(path, number, max(line.find(key), 0) + 1, len(key), line)
