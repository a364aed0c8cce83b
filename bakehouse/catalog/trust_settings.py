"""Requirements on images that are promoted or launched: the table `[tool.bakehouse.policy]`."""

from dataclasses import dataclass
from pathlib import Path

from bakehouse.util.files import is_file
from bakehouse.util.suggest import suggestion
from bakehouse.util.toml_table import TomlTable

REQUIREMENTS = ("signature", "tests", "provenance", "sbom", "pinned")


@dataclass(frozen=True, slots=True)
class Policy:
    """Signed statements that an image needs."""

    keys: tuple[Path, ...]
    """PEM files with the trusted public keys."""
    require: tuple[str, ...] = ()
    """Some of `REQUIREMENTS`."""
    rebuilds: int = 0
    """Minimum number of trusted keys that signed a rebuild of the image, without those of its provenance."""


def read_policy(root: Path, settings: TomlTable) -> Policy:
    """Read the table `policy`. Paths start at `root`."""
    table = settings.child("policy")
    table.check_keys(("require", "keys", "rebuilds"))
    keys, require = table.texts("keys"), table.texts("require")
    for name in require:
        if name not in REQUIREMENTS:
            message = f"unknown requirement `{name}` in [{table.name}]"
            hint = suggestion(name, REQUIREMENTS) or f"use {', '.join(f'`{name}`' for name in REQUIREMENTS)}"
            table.report("require", message, hint)
    for name in keys:
        if not is_file(root / name):
            table.report("keys", f"`keys` in [{table.name}] names `{name}`, which is not a file")
    if table.values.get("keys", []) == []:
        hint = 'name the public keys: `keys = ["signing.pub"]`'
        table.report("keys", f"[{table.name}] has no `keys`", hint)
    most = range(len(keys) + 1)
    rebuilds = table.number("rebuilds", 0, most, f"a number of keys, at most {len(keys)} as in `keys`")
    return Policy(tuple(root / name for name in keys), require, rebuilds)
