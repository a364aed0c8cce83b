"""Differences between the values of two recipes, apart from the resolved versions."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.requirements_file import RequiredPackage
from bakehouse.catalog.system_packages import MANAGERS, SystemPackages
from bakehouse.catalog.user_files import File
from bakehouse.errors import RecipeError
from bakehouse.resolve.phrases import version_range

_MAX_WIDTH = 60
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class RecipeDifference:
    """One value of a recipe that differs."""

    key: str
    """The key in the recipe, such as `environment`."""
    name: str
    """The entry of that key, such as the name of a variable; empty if the key has one value."""
    before: str | None
    """None if the first recipe lacks it."""
    after: str | None

    @property
    def text(self) -> str:
        sign = "+" if self.before is None else "-" if self.after is None else "~"
        given = [_short(value) for value in (self.before, self.after) if value is not None]
        values = " → ".join(value or "any" for value in given) if any(given) else ""
        return " ".join(filter(None, [sign, self.key, _short(self.name), values]))


def recipe_differences(before: Recipe, after: Recipe) -> Iterator[RecipeDifference]:
    """Yield the differences by key. Files and code are compared by content."""
    first, second = _values(before), _values(after)
    for key in first:
        names = dict.fromkeys([*first[key], *second[key]])
        for name in names:
            values = first[key].get(name), second[key].get(name)
            if values[0] != values[1]:
                yield RecipeDifference(key, name, *values)
    steps = [recipe.content.run for recipe in (before, after)]
    if steps[0] != steps[1] and first["run"] == second["run"]:
        yield RecipeDifference("run", "", "one order", "another order")


def _values(recipe: Recipe) -> Mapping[str, Mapping[str, str]]:
    """Return the values of each key, by name."""
    content = recipe.content
    lists = {
        "exclude": sorted(recipe.exclude),
        "targets.instances": [instance.text for instance in recipe.targets.instances],
        "run": [str(step) for step in content.run],
        "required": recipe.required or (),
        "trim": recipe.trim or (),
    }
    single = {
        "purpose": recipe.purpose or None,
        "format": recipe.format,
        "targets.driver": recipe.targets.driver.text if recipe.targets.driver else None,
        "code.entry_point": content.entry_point,
    }
    return {
        "base": {recipe.base.name: version_range(recipe.base) or "any"},
        "components": {
            requirement.name: version_range(requirement) or "any" for requirement in recipe.components
        },
        "variants": {name: pattern.text for name, pattern in recipe.variants.items()},
        "environment": dict(content.environment),
        "packages": _packages(content.system_packages),
        **{key: dict.fromkeys(values, "") for key, values in lists.items()},
        "files": _files(content.files),
        "code": _files(content.code),
        "requirements": dict(_requirements(recipe)),
        "budget": {budget.name: budget.written for budget in recipe.budgets},
        "smoke": dict(_smoke(recipe)),
        **{key: {"": value} if value else {} for key, value in single.items()},
    }


def _smoke(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the settings of the user's own test."""
    smoke = recipe.smoke
    if smoke is None:
        return
    single = ("entry_point", "hosts", "processes", "launcher", "expect", "timeout")
    yield from ((name, str(value)) for name in single if (value := getattr(smoke, name)))
    yield from ((f"hyperparameters.{name}", text) for name, text in smoke.hyperparameters)
    directory = recipe.location.path.parent
    yield from ((f"channels.{name}", os.path.relpath(path, directory)) for name, path in smoke.channels)


def _packages(packages: SystemPackages) -> dict[str, str]:
    """Return the version of each distribution package, by name, or by manager and name if they differ."""
    if packages.apt == packages.dnf:
        return dict(map(_version, sorted(packages.names("apt"))))
    return {
        f"{manager} {name}": version
        for manager in MANAGERS
        for name, version in map(_version, sorted(packages.names(manager)))
    }


def _version(package: str) -> tuple[str, str]:
    name, _, version = package.partition("=")
    return name, version


def _files(files: tuple[File, ...]) -> dict[str, str]:
    return {
        file.target: f"sha256:{file.sha256[:12]}" + (" (executable)" if file.is_executable else "")
        for file in files
    }


def _requirements(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the name of each requirement and the rest of its text, also those of included files."""
    try:
        requirements = recipe.requirements.read() if recipe.requirements else None
    except RecipeError:
        # The error is reported when the recipe is read
        return
    if requirements is None:
        return
    for package in requirements.packages:
        yield _requirement(package)
    for package in requirements.constraints:
        name, text = _requirement(package)
        yield f"-c {name}", text
    for option in requirements.options:
        yield option.text, ""


def _requirement(package: RequiredPackage) -> tuple[str, str]:
    match = _REQUIREMENT.match(package.text)
    rest = package.text[match.end() :].strip() if match else package.text
    return package.name, rest or "any"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_WIDTH else f"{line[: _MAX_WIDTH - 1]}…"
