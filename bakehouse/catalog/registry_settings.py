"""The registries of a project: the tables of `[tool.bakehouse.registries]`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakehouse.errors import Diagnostic, Problems, PublishError
from bakehouse.util.oci import check_names
from bakehouse.util.suggest import suggestion
from bakehouse.util.toml_location import key_location

SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW", "INFORMATIONAL", "UNDEFINED")
"""Severities of findings, most severe first."""
_ROOT = "tool.bakehouse.registries"
_TAKEN = ("local", "ecr")
_ECR_ONLY = ("account", "regions", "profile", "role", "fips", "dual_stack", "scan", "create")
KEYS = ("host", "prefix", *_ECR_ONLY)
CREATE = (
    *("scan_on_push", "encryption", "tags", "lifecycle", "untagged_days", "pull_accounts"),
    "pull_organization",
)
_NAME = re.compile("[a-z0-9][a-z0-9_-]*")
_ACCOUNT = re.compile("[0-9]{12}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+")
_KMS_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:(key|alias)/[\w/-]+")
_ORGANIZATION = re.compile("o-[a-z0-9]{10,32}")


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
    """The organisation of AWS whose accounts may pull."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A table of `[tool.bakehouse.registries]`."""

    name: str
    host: str = ""
    """Host of a registry other than Amazon ECR."""
    account: str = ""
    """AWS account of the registry."""
    regions: tuple[str, ...] = ()
    """All of them get each image; the first one's address is the image's."""
    prefix: str = ""
    """Prefix of its repositories; empty for the prefix of the project."""
    profile: str = ""
    role: str = ""
    """The ARN of a role to assume."""
    fips: bool = False
    dual_stack: bool = False
    scan: str = ""
    """The least severity of a finding that keeps an image from being released; empty asks for no scan."""
    create: Creation = field(default_factory=Creation)


def read_registries(tables: object, path: Path, problems: Problems) -> dict[str, RegistrySettings]:
    """The settings of each registry by its name; what is wrong is added to `problems`."""
    if not isinstance(tables, dict):
        message = "`registries` in [tool.bakehouse] must be a table of tables"
        problems.add(Diagnostic(message, key_location(path, "registries", "tool.bakehouse")))
        return {}
    found = {}
    for name, table in tables.items():
        spot = key_location(path, name, _ROOT)
        if not isinstance(table, dict):
            problems.add(Diagnostic(f"`{name}` in [{_ROOT}] must be a table", spot))
        elif not _NAME.fullmatch(name) or name in _TAKEN:
            message = f"`{name}` is not a registry name"
            hint = "use lowercase letters, digits, `-` and `_`; `local` and `ecr` are reserved"
            problems.add(Diagnostic(message, spot, hint=hint))
        else:
            found[name] = _registry(name, _Table(table, f"{_ROOT}.{name}", path, problems))
    return found


class _Table:
    """A table of TOML, asked for values of a type."""

    def __init__(self, table: Mapping[str, Any], name: str, path: Path, problems: Problems) -> None:
        self.table, self.name, self.path = table, name, path
        self._problems = problems

    def report(self, key: str, message: str, hint: str = "") -> None:
        self._problems.add(Diagnostic(message, key_location(self.path, key, self.name), hint=hint))

    def knows(self, keys: tuple[str, ...]) -> None:
        for key in self.table:
            if key not in keys:
                self.report(key, f"unknown key `{key}` in [{self.name}]", suggestion(key, keys))

    def text(self, key: str, pattern: re.Pattern[str] | None = None, hint: str = "") -> str:
        value = self.table.get(key, "")
        if not isinstance(value, str):
            self._wrong(key, "a text")
        elif value and pattern and not pattern.fullmatch(value):
            self.report(key, f"`{key}` in [{self.name}] is invalid: `{value}`", hint)
        else:
            return value
        return ""

    def texts(self, key: str, fits: Callable[[str], bool], hint: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._wrong(key, "a list of texts")
            return ()
        for item in value:
            if not fits(item):
                self.report(key, f"`{key}` in [{self.name}] has an invalid item: `{item}`", hint)
        return tuple(dict.fromkeys(item for item in value if fits(item)))

    def truth(self, key: str) -> bool:
        value = self.table.get(key, False)
        if not isinstance(value, bool):
            self._wrong(key, "true or false")
            return False
        return value

    def number(self, key: str) -> int:
        value = self.table.get(key, 0)
        if type(value) is not int or (key in self.table and not 0 < value < 10_000):
            self._wrong(key, "a whole number above 0")
            return 0
        return value

    def pairs(self, key: str) -> dict[str, str]:
        value = self.table.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            self._wrong(key, "a table of names and texts")
            return {}
        return dict(value)

    def below(self, key: str) -> "_Table":
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            self._wrong(key, "a table")
            value = {}
        return _Table(value, f"{self.name}.{key}", self.path, self._problems)

    def _wrong(self, key: str, kind: str) -> None:
        self.report(key, f"`{key}` in [{self.name}] must be {kind}")


def _registry(name: str, table: _Table) -> RegistrySettings:
    table.knows(KEYS)
    host = table.text("host")
    if host:
        _check(table, "host", host, "team")
        for key in (key for key in _ECR_ONLY if key in table.table):
            message = (
                f"`{key}` in [{table.name}] applies to Amazon ECR only, but `host` names another registry"
            )
            table.report(key, message, "set `account` and `regions` for a registry in Amazon ECR")
    prefix = table.text("prefix")
    if prefix:
        _check(table, "prefix", "registry.example.com", prefix)
    role = table.text("role", _ROLE, "such as `arn:aws:iam::123456789012:role/Pusher`")
    account = table.text("account", _ACCOUNT, "an account number has 12 digits")
    if role and not account:
        account = role.split(":")[4]
    if not host and not account:
        table.report("account", f"[{table.name}] needs `account`, `role` or `host`")
    if account and not table.table.get("regions"):
        table.report("regions", f"[{table.name}] has no `regions`", 'such as `regions = ["eu-west-1"]`')
    return RegistrySettings(
        name=name,
        host=host,
        account=account,
        regions=table.texts("regions", _is_region, "such as `eu-west-1`"),
        prefix=prefix,
        profile=table.text("profile"),
        role=role,
        fips=table.truth("fips"),
        dual_stack=table.truth("dual_stack"),
        scan=table.text("scan", re.compile("|".join(SEVERITIES)), "one of " + ", ".join(SEVERITIES)),
        create=_creation(table.below("create")),
    )


def _check(table: _Table, key: str, host: str, repository: str) -> None:
    try:
        check_names(host, repository)
    except PublishError as error:
        for one in error.diagnostics:
            table.report(key, one.message, one.hint or one.reasons[0].text)


def _is_region(region: str) -> bool:
    """Return whether a text has the form of a region name; botocore checks later whether it exists."""
    return re.fullmatch("[a-z]+(-[a-z]+)+-[0-9]+", region) is not None


def _creation(table: _Table) -> Creation:
    table.knows(CREATE)
    days, lifecycle = table.number("untagged_days"), table.text("lifecycle")
    if days and lifecycle:
        table.report("lifecycle", f"[{table.name}] has both `lifecycle` and `untagged_days`")
    accounts = table.texts("pull_accounts", lambda one: _ACCOUNT.fullmatch(one) is not None, "12 digits")
    return Creation(
        scan_on_push=table.truth("scan_on_push"),
        encryption=table.text(
            "encryption", re.compile(f"AES256|KMS|{_KMS_KEY.pattern}"), "`AES256`, `KMS`, or the ARN of a key"
        ),
        tags=table.pairs("tags"),
        lifecycle=_policy(table, lifecycle),
        untagged_days=days,
        pull_accounts=accounts,
        pull_organization=table.text("pull_organization", _ORGANIZATION, "such as `o-a1b2c3d4e5`"),
    )


def _policy(table: _Table, name: str) -> Path | None:
    """A lifecycle policy that expires images without tags alone: what the ledger holds has tags."""
    if not name:
        return None
    path = table.path.parent / name
    try:
        rules = json.loads(path.read_text(encoding="utf-8"))["rules"]
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
