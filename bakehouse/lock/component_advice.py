"""Requirements that a build would compile from source although a component of the catalogue provides them."""

from collections.abc import Iterator

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component
from bakehouse.catalog.python_lock import normal_name
from bakehouse.catalog.requirements_file import RequiredPackage
from bakehouse.resolve.resolver import Resolution


def component_advice(
    resolution: Resolution, lines: tuple[RequiredPackage, ...], catalog: Catalog
) -> Iterator[str]:
    """Yield a line for each requirement that is a component of the catalogue, unless the image has it."""
    chosen = {choice.name for choice in resolution.all_choices}
    for line in lines:
        names = [name for name, component in catalog.components.items() if _provides(component, line.name)]
        if names and not chosen.intersection(names):
            kind = "a component" if len(names) == 1 else "components"
            listed = ", ".join(f"`{name}`" for name in sorted(names))
            place = f"{line.location.path.name}:{line.location.line}"
            yield (
                f"{resolution.recipe.name}: the catalogue has {kind} for `{line.name}` ({place}): "
                f"component {listed}; add one to `components` and remove the line"
            )


def _provides(component: Component, package: str) -> bool:
    """Return whether a component is named after a package, or after its flavor, such as `horovod-nccl`."""
    if component.name == package:
        return True
    projects = map(normal_name, component.upstream.projects if component.upstream else ())
    return package in projects and (component.name.startswith(package) or package.startswith(component.name))
