"""Expansion of a matrix, which replaces `${name}` in texts by the values of the axes.

The `matrix` of a variant or recipe lists the axes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import product

from bakehouse.catalog.window import Window, Windows
from bakehouse.errors import Diagnostic, Location, Problems
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Mapping as YamlMapping
from bakehouse.util.yaml_reader import Node, Scalar, Sequence

MAX_CELLS = 1_000
MATRIX = "matrix"
EXCLUDE, INCLUDE = "exclude", "include"
_VARIABLE = re.compile(r"\$(?P<literal>\$)?\{(?P<name>[^|{}]*)(?P<filters>(?:\|[^|{}]*)*)\}")
VARIABLE_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
_FILTERS: dict[str, Callable[[str], str]] = {
    "tag": lambda text: text.replace(".", ""),
    "minor": lambda text: ".".join(text.split(".")[:2]),
}

_STAND_IN = "0"
"""Value of an unknown variable: a part of a name and a version, so that nothing else is a mistake, too."""

Variables = Mapping[str, Scalar]
"""The values of one cell, by variable."""


def variants(node: Node, problems: Problems) -> list[Node]:
    """Return a variant, or the variants of its `matrix`."""
    if not isinstance(node, YamlMapping) or all(key.text != MATRIX for key, _ in node.entries):
        return [node]
    axes = Fields(node, "a variant", problems).child(MATRIX, f"`{MATRIX}`")
    return expand(node, _cells(axes, axes.names, problems) if axes else [], problems)


def expand(node: YamlMapping, cells: Iterable[Variables], problems: Problems) -> list[Node]:
    """Return copies of a mapping without its `matrix`, each with the values of one cell."""
    entries = tuple((key, value) for key, value in node.entries if key.text != MATRIX)
    return [substituted(YamlMapping(entries, node.location), cell, problems) for cell in cells]


def cells(fields: Fields, windows: Windows) -> list[Variables]:
    """Return the cells of a `matrix`: the product of its axes without `exclude`, and `include`.

    An axis is a window, or a list of texts, or of mappings that set several variables at once.
    """
    axes = [name for name in fields.names if name not in (EXCLUDE, INCLUDE)]
    product_cells = _cells(fields, axes, fields.problems, windows)
    variables = product_cells[0].keys() if product_cells else set()
    kept = product_cells
    for item in fields.children(EXCLUDE, "an item of `exclude`"):
        pattern = _texts(item)
        if _are_known(item, pattern, variables):
            left = [cell for cell in kept if not _matches(cell, pattern)]
            # The window may hold such a combination later
            if len(left) == len(kept) and not windows.refusals:
                item.report(
                    "this item excludes nothing", item.location, hint="remove it or correct its values"
                )
            kept = left
    for item in fields.children(INCLUDE, "an item of `include`"):
        cell = _texts(item)
        if _are_known(item, cell, variables) and _is_whole(item, cell, variables):
            kept = [*kept, cell]
    fields.finish()
    if product_cells and not kept:
        fields.report("the matrix has no combinations left", fields.location)
    return kept


def substituted(node: Node, cell: Variables, problems: Problems) -> Node:
    """Return a node with the variables in its texts replaced; `$${` is a literal `${`."""
    if isinstance(node, Scalar):
        return _text(node, cell, problems) if "${" in node.text else node
    if isinstance(node, Sequence):
        return Sequence(tuple(substituted(item, cell, problems) for item in node.items), node.location)
    entries = tuple((key, substituted(value, cell, problems)) for key, value in node.entries)
    return YamlMapping(entries, node.location)


def _text(scalar: Scalar, cell: Variables, problems: Problems) -> Scalar:
    whole = _VARIABLE.fullmatch(scalar.text)
    if whole and not whole["literal"] and not whole["filters"] and whole["name"] in cell:
        # Keep the location of the value, because the mistake is there.
        return cell[whole["name"]]

    def value(match: re.Match[str]) -> str:
        if match["literal"]:
            return match[0][1:]
        name, filters = match["name"], match["filters"].split("|")[1:]
        if name not in cell:
            hint = suggestion(name, cell) or "write `$${` for a literal `${`"
            problems.add(Diagnostic(f"unknown variable `{name}`", scalar.location, hint=hint))
            return _STAND_IN
        text = cell[name].text
        for filter_name in filters:
            if filter_name not in _FILTERS:
                hint = suggestion(filter_name, _FILTERS)
                problems.add(Diagnostic(f"unknown filter `{filter_name}`", scalar.location, hint=hint))
                return _STAND_IN
            text = _FILTERS[filter_name](text)
        return text

    return Scalar(_VARIABLE.sub(value, scalar.text), scalar.location)


def _cells(
    fields: Fields, axes: Collection[str], problems: Problems, windows: Windows | None = None
) -> list[Variables]:
    lists: dict[str, list[Variables]] = {}
    by_axis: dict[str, Window] = {}
    size = 1
    for axis in axes:
        node = fields.node(axis)
        if windows and isinstance(node, YamlMapping):
            inner = Fields(node, f"the window of `{axis}`", problems)
            by_axis[axis] = windows.read(inner, axis, axes)
            lists[axis] = [{axis: version} for version in by_axis[axis].versions]
            size *= by_axis[axis].newest
        else:
            lists[axis] = _axis(fields, axis)
            size *= len(lists[axis])
    if not lists:
        fields.report(
            f"{fields.what} has no axes", fields.location, hint="write an axis as a name and a list of values"
        )
        return []
    if size > MAX_CELLS:
        message = f"{size:,} combinations; at most {MAX_CELLS:,} are allowed"
        fields.report(message, fields.location, hint="split the recipe: `exclude` does not lower this number")
        return []
    _check_apart(fields, [items[0] for items in lists.values() if items])
    if windows and by_axis:
        return windows.cells(fields, lists, by_axis) if all(lists.values()) else []
    return [
        {name: value for part in parts for name, value in part.items()} for parts in product(*lists.values())
    ]


def _axis(fields: Fields, name: str) -> list[Variables]:
    node = fields.node(name)
    spot = fields.place(name)
    if not VARIABLE_NAME.fullmatch(name):
        fields.report(f"`{name}` is not a variable name", spot, "letters, digits, `-` and `_`")
    if not isinstance(node, Sequence) or not node.items:
        fields.report(f"axis `{name}` must be a list of values", spot)
        return []
    items: list[Variables] = []
    for item in node.items:
        if isinstance(item, Scalar):
            items.append({name: item})
        else:
            items.append(_texts(Fields(item, f"an item of axis `{name}`", fields.problems)))
    is_uniform = True
    for item, values in zip(node.items, items, strict=True):
        if odd := values.keys() ^ items[0].keys():
            is_uniform = False
            label = f"{', '.join(f'`{variable}`' for variable in sorted(odd))} not in all"
            fields.report(f"the items of axis `{name}` set different variables", item.location, label)
    return items if is_uniform else []


def _check_apart(fields: Fields, parts: list[Variables]) -> None:
    seen: dict[str, Location] = {}
    for part in parts:
        for name, value in part.items():
            if name in seen:
                fields.report(f"two axes set `{name}`", value.location, f"first on line {seen[name].line}")
            seen.setdefault(name, value.location)


def _texts(fields: Fields) -> Variables:
    texts = {}
    for name in fields.names:
        fields.text(name)
        node = fields.node(name)
        if isinstance(node, Scalar):
            texts[name] = node
    return texts


def _are_known(fields: Fields, given: Variables, variables: Iterable[str]) -> bool:
    unknown = [name for name in given if name not in variables]
    for name in unknown:
        hint = suggestion(name, variables)
        fields.report(f"unknown variable `{name}`", fields.place(name), hint=hint)
    return bool(given) and not unknown


def _is_whole(fields: Fields, given: Variables, variables: Iterable[str]) -> bool:
    missing = [name for name in variables if name not in given]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        fields.report(f"an item of `include` does not set {names}", fields.location)
    return not missing


def _matches(cell: Variables, patterns: Variables) -> bool:
    return all(fnmatchcase(cell[name].text, pattern.text) for name, pattern in patterns.items())
