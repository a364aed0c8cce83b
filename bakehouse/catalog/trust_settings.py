"""Requirements on images that are promoted or launched: the table `[tool.bakehouse.policy]`."""

from dataclasses import dataclass
from pathlib import Path

from bakehouse.util.files import is_file
from bakehouse.util.suggest import suggestion
from bakehouse.util.toml_table import TomlTable

REQUIREMENTS = ("signature", "tests", "scan", "provenance", "sbom")
MAX_SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
"""Severities of vulnerabilities that a policy can accept, the worst first."""
CONTENTS = ("Debian", "Python", "base", "files", "run")
"""Kinds of contents that a policy can accept without a scan."""
_MAX_DAYS = 365
_DAYS = 7


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Scan results that an image needs."""

    max_severity: str = ""
    """Highest severity of open vulnerabilities; empty accepts none."""
    max_age: int = _DAYS
    """Maximum age of a scan in days, by its oldest data."""
    accept_not_scanned: tuple[str, ...] = ()
    """Some of `CONTENTS`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Signed statements that an image needs."""

    keys: tuple[Path, ...]
    """PEM files with the trusted public keys."""
    require: tuple[str, ...] = ()
    """Some of `REQUIREMENTS`."""
    rebuilds: int = 0
    """Minimum number of trusted keys that signed a rebuild of the image, without those of its provenance."""
    scan: ScanRules = ScanRules()
    """Rules for the requirement `scan`."""


def read_policy(root: Path, settings: TomlTable) -> Policy:
    """Read the table `policy`. Paths start at `root`."""
    table = settings.child("policy")
    table.check_keys(("require", "keys", "rebuilds", "scan"))
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
    scan = table.child("scan")
    if "scan" in table.values and "scan" not in require:
        message = f"[{scan.name}] has no effect, because `require` does not contain `scan`"
        scan.report("scan", message, "add `scan` to `require`")
    return Policy(tuple(root / name for name in keys), require, rebuilds, _scan_rules(scan))


def _scan_rules(table: TomlTable) -> ScanRules:
    table.check_keys(("max_severity", "max_age", "accept_not_scanned"))
    pattern, hint = "|".join(MAX_SEVERITIES), f"use {', '.join(f'`{name}`' for name in MAX_SEVERITIES)}"
    max_severity = table.text("max_severity", pattern=pattern, hint=hint)
    days = range(1, _MAX_DAYS + 1)
    max_age = table.number("max_age", _DAYS, days, f"a number of days from 1 to {_MAX_DAYS}")
    contents = f"use {', '.join(f'`{name}`' for name in CONTENTS)}"
    return ScanRules(
        max_severity, max_age, table.texts("accept_not_scanned", CONTENTS.__contains__, contents)
    )
