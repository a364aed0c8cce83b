"""The registries of a project: the tables of `[tool.bakehouse.registries]`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakehouse.errors import PublishError
from bakehouse.util.directory_handles import repository_of
from bakehouse.util.files import read_bytes
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import ACCOUNT_HINT, check_names
from bakehouse.util.toml_table import TomlTable

SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW", "INFORMATIONAL", "UNDEFINED")
"""Severities of findings, most severe first."""
_TAKEN = ("local", "ecr")
_ECR_ONLY = ("account", "regions", "profile", "role", "fips", "dual_stack", "scan", "create")
KEYS = ("host", "prefix", *_ECR_ONLY)
CREATE = (
    *("scan_on_push", "encryption", "tags", "lifecycle", "untagged_days", "pull_accounts"),
    "pull_organization",
)
_NAME = re.compile("[a-z0-9][a-z0-9_-]*")
_ACCOUNT = "[0-9]{12}"
_REGION = "[a-z]+(-[a-z]+)+-[0-9]+"
KMS_KEY = r"awskms:///arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+"
ROLE = r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+"
_ENCRYPTION = r"AES256|KMS|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:(key|alias)/[\w/-]+"
_ORGANIZATION = "o-[a-z0-9]{10,32}"


@dataclass(frozen=True, slots=True)
class Creation:
    """Settings of repositories that Bakehouse creates in Amazon ECR."""

    scan_on_push: bool = False
    encryption: str = ""
    """`AES256`, `KMS` for AWS's own key, or a key's ARN; empty is ECR's default."""
    tags: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Path | None = None
    """A file with a lifecycle policy."""
    untagged_days: int = 0
    """Days after which an image without tags expires; 0 is never."""
    pull_accounts: tuple[str, ...] = ()
    """Accounts that may pull."""
    pull_organization: str = ""
    """AWS organization whose accounts may pull."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A table of `[tool.bakehouse.registries]`."""

    name: str
    host: str = ""
    """Host of a registry other than Amazon ECR."""
    account: str = ""
    """AWS account of the registry."""
    regions: tuple[str, ...] = ()
    """Each image is pushed to all of them; its URI is in the first one."""
    prefix: str = ""
    """Prefix of its repositories; empty for the prefix of the project."""
    profile: str = ""
    role: str = ""
    """ARN of a role to assume."""
    fips: bool = False
    dual_stack: bool = False
    scan: str = ""
    """Lowest severity of a finding that blocks a release; empty for no scan."""
    create: Creation = field(default_factory=Creation)


def read_registries(settings: TomlTable) -> dict[str, RegistrySettings]:
    """Read the settings of each registry, by name."""
    tables = settings.child("registries", "a table of tables")
    registries = {}
    for name in tables.values:
        if not isinstance(tables.values[name], dict):
            tables.report_type(name, "a table")
        elif not _NAME.fullmatch(name) or name in _TAKEN:
            hint = "use lowercase letters, digits, `-` and `_`; `local` and `ecr` are reserved"
            tables.report(name, f"`{name}` is not a registry name", hint)
        elif (dotted := _dotted(name, tables.values[name])) != name:
            hint = f"use a name without dots: `[{tables.name}.NAME]`, then `host`, or `account` and `regions`"
            tables.report(name, f"`{dotted}` is not a registry name", hint)
        else:
            registries[name] = _registry(name, tables.child(name))
    return registries


def _dotted(name: str, values: Mapping[str, Any]) -> str:
    """Return the name as written in a header: TOML reads an unquoted name with dots as nested tables."""
    for key, value in values.items():
        if isinstance(value, dict) and key not in KEYS:
            return f"{name}.{_dotted(key, value)}"
    return name


def _registry(name: str, table: TomlTable) -> RegistrySettings:
    table.check_keys(KEYS)
    host = table.text("host")
    if host:
        _check(table, "host", host, "team")
        for key in (key for key in _ECR_ONLY if key in table.values):
            message = (
                f"`{key}` in [{table.name}] applies to Amazon ECR only, but `host` names another registry"
            )
            table.report(key, message, "set `account` and `regions` for a registry in Amazon ECR")
    prefix = table.text("prefix")
    if prefix:
        _check(table, "prefix", "registry.example.com", prefix)
    role = table.text("role", pattern=ROLE, hint="such as `arn:aws:iam::123456789012:role/Pusher`")
    account = table.text("account", pattern=_ACCOUNT, hint=ACCOUNT_HINT)
    if role and not account:
        account = role.split(":")[4]
    if not {"host", "account", "role"} & table.values.keys():
        table.report("account", f"[{table.name}] needs `account`, `role` or `host`")
    if account and not table.values.get("regions"):
        table.report("regions", f"[{table.name}] has no `regions`", 'such as `regions = ["eu-west-1"]`')
    return RegistrySettings(
        name=name,
        host=host,
        account=account,
        regions=table.texts("regions", _is_region, "such as `eu-west-1`"),
        prefix=prefix,
        profile=table.text("profile"),
        role=role,
        fips=table.flag("fips"),
        dual_stack=table.flag("dual_stack"),
        scan=table.text("scan", pattern="|".join(SEVERITIES), hint="one of " + ", ".join(SEVERITIES)),
        create=_creation(table.child("create")),
    )


def _check(table: TomlTable, key: str, host: str, repository: str) -> None:
    try:
        check_names(host, repository)
    except PublishError as error:
        for mistake in error.diagnostics:
            table.report(key, mistake.message, mistake.hint or mistake.reasons[0].text)


def _is_region(region: str) -> bool:
    """Return whether a text has the form of a region name; botocore checks later whether it exists."""
    return re.fullmatch(_REGION, region) is not None


def _creation(table: TomlTable) -> Creation:
    table.check_keys(CREATE)
    days, lifecycle = (
        table.number("untagged_days", 0, range(1, 10_000), "a whole number above 0"),
        table.text("lifecycle"),
    )
    if days and lifecycle:
        table.report("lifecycle", f"[{table.name}] has both `lifecycle` and `untagged_days`")
    accounts = table.texts(
        "pull_accounts", lambda account: re.fullmatch(_ACCOUNT, account) is not None, "12 digits"
    )
    return Creation(
        scan_on_push=table.flag("scan_on_push"),
        encryption=table.text("encryption", pattern=_ENCRYPTION, hint="`AES256`, `KMS`, or the ARN of a key"),
        tags=table.pairs("tags"),
        lifecycle=_policy(table, lifecycle),
        untagged_days=days,
        pull_accounts=accounts,
        pull_organization=table.text(
            "pull_organization", pattern=_ORGANIZATION, hint="such as `o-a1b2c3d4e5`"
        ),
    )


def _policy(table: TomlTable, name: str) -> Path | None:
    """Return the path of a lifecycle policy, which may only expire images without tags."""
    if not name:
        return None
    path = table.path.parent / name
    try:
        rules = parse_json(read_bytes(path, within=repository_of(table.path)))["rules"]
        statuses = [str(rule["selection"]["tagStatus"]) for rule in rules]
    except OSError as error:
        table.report("lifecycle", f"cannot read `{name}`: {(error.strerror or str(error)).lower()}")
        return None
    except (ValueError, KeyError, TypeError):
        table.report("lifecycle", f"`{name}` is not a lifecycle policy", "see `docs/how-to/use-ecr.md`")
        return None
    for status in statuses:
        if status != "untagged":
            message = f"`{name}` has a rule for {status} images, which would expire released images"
            table.report("lifecycle", message, "limit all rules to untagged images")
    return path
