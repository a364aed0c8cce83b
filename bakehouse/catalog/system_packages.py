"""Distribution packages of recipes and components, by package manager."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bakehouse.errors import Location
from bakehouse.util.yaml_fields import Fields

Manager = Literal["apt", "dnf"]
MANAGERS: tuple[Manager, ...] = ("apt", "dnf")

APT_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]*[a-z0-9.+](=[A-Za-z0-9.+:~-]+)?")
"""A Debian package without a final hyphen, which means removal to apt."""
_DNF_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+~-]*[A-Za-z0-9_+])?")
"""An RPM package, or `name-version`, without globs, options and groups."""
_PATTERNS: dict[Manager, re.Pattern[str]] = {"apt": APT_PACKAGE, "dnf": _DNF_PACKAGE}


@dataclass(frozen=True, slots=True)
class SystemPackages:
    """Names of distribution packages for each package manager; None if the names are not known."""

    apt: tuple[str, ...] | None = ()
    dnf: tuple[str, ...] | None = ()

    def __add__(self, other: "SystemPackages") -> "SystemPackages":
        return SystemPackages(_sum(self.apt, other.apt), _sum(self.dnf, other.dnf))

    def of(self, manager: Manager) -> "SystemPackages":
        """Return the names for one manager alone."""
        names = self.names(manager)
        return SystemPackages(apt=names) if manager == "apt" else SystemPackages(dnf=names)

    def names(self, manager: Manager) -> tuple[str, ...]:
        """Return the names for one manager; empty if they are not known."""
        return self._of(manager) or ()

    def lacks(self, manager: Manager) -> bool:
        """Return whether the names for a manager are not known."""
        return self._of(manager) is None

    def invalid(self, manager: Manager) -> tuple[str, ...]:
        """Return the names that one manager does not accept, such as `name=version` of apt for dnf."""
        return tuple(name for name in self.names(manager) if not _PATTERNS[manager].fullmatch(name))

    def _of(self, manager: Manager) -> tuple[str, ...] | None:
        return self.apt if manager == "apt" else self.dnf


NO_PACKAGES = SystemPackages()


def manager_of(provides: Mapping[str, str]) -> Manager:
    """Return the package manager of a base, from the names that it provides."""
    return "dnf" if "amazon-linux" in provides else "apt"


def read_packages(fields: Fields, key: str) -> SystemPackages:
    """Read a list of names that all managers share, or a mapping of managers to their names."""
    lists = fields.shared_or_named_lists(key, _PATTERNS, APT_PACKAGE, "package name")
    names = {manager: tuple(item.text for item in items) for manager, items in lists.items()}
    return SystemPackages(names.get("apt"), names.get("dnf"))


def package_lines(fields: Fields, key: str) -> dict[str, Location]:
    """Return the location of each package that `key` names."""
    lists = fields.shared_or_named_lists(key, _PATTERNS, APT_PACKAGE, "package name")
    return {item.text: item.location for items in lists.values() for item in items}


def _sum(first: tuple[str, ...] | None, second: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if first is None or second is None else first + second
