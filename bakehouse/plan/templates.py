"""Reader of the shared templates."""

from pathlib import Path


def read_templates(directory: Path) -> dict[str, str]:
    """Return the shared templates by relative path. Callers read them once: they are part of all keys."""
    paths = sorted(
        [*directory.glob("*.j2"), *(path for path in (directory / "bin").iterdir() if path.is_file())]
    )
    return {path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8") for path in paths}
