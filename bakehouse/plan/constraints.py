"""Constraints of an image: the versions of Python packages that pip and uv must not replace in it."""

from collections.abc import Callable

from bakehouse.catalog.base_contents import BaseContents
from bakehouse.catalog.python_lock import normal_name
from bakehouse.resolve.resolver import Resolution

_BUILD_TOOLS = frozenset({"pip", "setuptools", "wheel"})
"""pip before 26.2 also applies constraints to build requirements, and builds need other versions of these."""


def constraints(
    resolution: Resolution, base_contents: Callable[[str], BaseContents | None]
) -> tuple[str, ...]:
    """Return a line `name==version` for each package of a component or of the base; none if switched off.

    Packages of a vendor's base are included only if there is a record of them.
    """
    if not resolution.recipe.constraints:
        return ()
    source = resolution.base.spec.base
    contents = base_contents(source.digest) if source and source.digest else None
    installed = [*(contents.packages if contents else ())]
    for choice in resolution.choices:
        installed += [*resolution.owners[choice.name], *choice.candidate.wheels.values()]
    # Components replace packages of the base
    versions = {normal_name(package.name): package.version for package in installed}
    lines = [f"{name}=={version}" for name, version in versions.items() if name not in _BUILD_TOOLS]
    return tuple(sorted([*lines, *resolution.companions]))
