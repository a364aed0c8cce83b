"""Reader of the `budget` of a recipe: size limits of components."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from bakehouse.errors import Location
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields

WHOLE = "image"
SYSTEM, FILES, STEPS, REQUIREMENTS = "packages", "files", "run", "requirements"
OWN = (WHOLE, SYSTEM, FILES, STEPS, REQUIREMENTS)
"""Names in a budget besides components: the whole image and the recipe's own content."""
_SIZE = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,3})?) ?(?P<unit>kB|MB|GB)")
_UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True)
class Budget:
    """Size limit of a component or other part of an image, as pushed."""

    name: str
    """A component, or one of `OWN`."""
    bytes: int
    written: str
    location: Location


def read_budgets(fields: Fields, components: Collection[str]) -> tuple[Budget, ...]:
    """Read the `budget` of a recipe and report its mistakes."""
    names = {*OWN, *components}
    budgets = []
    for name, value in fields.text_pairs("budget"):
        match = _SIZE.fullmatch(value.text)
        if name.text not in names:
            hint = suggestion(name.text, names) or "use `image` to limit the whole image"
            fields.report(f"`{name.text}` in `budget` is not a component", name.location, hint=hint)
        elif match is None:
            hint = "use a size such as `700 MB` or `1.2 GB`"
            fields.report(f"invalid size `{value.text}`", value.location, "a number and kB, MB or GB", hint)
        else:
            size = round(float(match["number"]) * _UNITS[match["unit"]])
            budgets.append(Budget(name.text, size, value.text, value.location))
    return tuple(budgets)
