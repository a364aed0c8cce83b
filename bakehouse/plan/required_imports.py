"""Packages that the requirements of a recipe name; a smoke check imports each in the image."""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement

from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.requirements_file import RequiredPackage
from bakehouse.errors import Diagnostic, Location, Problems
from bakehouse.util.suggest import suggestion


@dataclass(frozen=True, slots=True)
class RequiredImport:
    """A package that the recipe requests."""

    name: str
    """The normalized name of the package."""
    marker: str
    """The environments that the requirement is for; empty for all."""
    source: str
    """File and line of the requirement."""
    untested: str
    """The reason in the recipe why it is not imported; empty if it is imported."""


def required_imports(recipe: Recipe, problems: Problems) -> tuple[RequiredImport, ...]:
    """Return the packages that a recipe names, or all packages of a lock, without duplicates.

    Adds a diagnostic for each package of `untested_imports` that the recipe does not name.
    """
    reasons = {normal_name(name.text): reason.text for name, reason in recipe.untested_imports}
    requirements = recipe.requirements.read() if recipe.requirements else None
    if requirements and not requirements.locks:
        named = [_named(line, reasons) for line in requirements.packages]
    else:
        named = [_locked(package, reasons) for package in recipe.content.packages]
    imports = {package.name: package for package in reversed(named)}
    for name, _ in recipe.untested_imports:
        if normal_name(name.text) not in imports:
            message = f"`untested_imports` names `{name.text}`, which the requirements do not"
            hint = suggestion(name.text, imports) or "remove it"
            problems.add(Diagnostic(message, name.location, hint=hint))
    return tuple(sorted(imports.values(), key=lambda package: package.name))


def _named(line: RequiredPackage, reasons: Mapping[str, str]) -> RequiredImport:
    marker = Requirement(line.text).marker
    return RequiredImport(line.name, str(marker or ""), _place(line.location), reasons.get(line.name, ""))


def _locked(package: Package, reasons: Mapping[str, str]) -> RequiredImport:
    name = normal_name(package.name)
    return RequiredImport(name, "", _place(package.location), reasons.get(name, ""))


def _place(location: Location) -> str:
    return f"{location.path}:{location.line}"
