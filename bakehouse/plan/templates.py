"""Reader of the shared templates."""

from pathlib import Path

from bakehouse.util.files import is_file, matching_paths, read_text


def read_templates(directory: Path) -> dict[str, str]:
    """Return the shared templates by relative path. Callers read them once: they are part of all keys."""
    paths = sorted(
        [*matching_paths(directory, "*.j2"), *filter(is_file, matching_paths(directory / "bin", "*"))]
    )
    return {path.relative_to(directory).as_posix(): read_text(path) for path in paths}
