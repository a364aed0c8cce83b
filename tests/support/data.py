"""Long texts of test modules, which are in files next to them."""

from pathlib import Path


def text_of(module: str, name: str) -> str:
    """Return a text of a module, from `data/<module>/<name>.txt` in its directory."""
    path = Path(module)
    return (path.parent / "data" / path.stem / f"{name}.txt").read_bytes().decode()
