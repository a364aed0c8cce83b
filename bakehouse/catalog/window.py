"""Windows: axes of a matrix with the newest versions of a component whose combinations resolve."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from packaging.version import Version

from bakehouse.catalog.component import Component
from bakehouse.errors import Diagnostic
from bakehouse.util.format import format_names
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Scalar

NEWEST, GROUP = "newest", "in"
_MAX_TRIALS = 1_000
Cell = Mapping[str, Scalar]


@dataclass(frozen=True)
class Window:
    """An axis that has the newest version of each of the newest series of a component, such as 2.9.*."""

    newest: int
    group: str = ""
    """Axis for each of whose values the series are counted."""
    versions: tuple[Scalar, ...] = ()
    """All versions of the component, the newest first."""


@dataclass
class Windows:
    """The windows of a matrix."""

    components: Mapping[str, Component]
    mistakes_of: Callable[[str], Iterable[Diagnostic]]
    """The mistakes in the file of a component, which leave it out."""
    refusal_of: Callable[[Cell], str]
    """Why a combination does not resolve; empty if it does."""
    axes: set[str] = field(default_factory=set)
    refusals: dict[tuple[tuple[str, str], ...], str] = field(default_factory=dict)
    """The answers so far, by the values of the combination."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The combinations that do not resolve, with the reasons."""

        def part(cell: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
            return tuple(pair for pair in cell if pair[0] in self.axes)

        kept = {part(cell) for cell, refusal in self.refusals.items() if not refusal}
        refused = {
            cell if part(cell) in kept else part(cell): refusal
            for cell, refusal in reversed(self.refusals.items())
            if refusal
        }
        return tuple(
            f"{', '.join(f'{name} {value}' for name, value in cell)}: {refusal}"
            for cell, refusal in reversed(refused.items())
        )

    def read(self, fields: Fields, axis: str, axes: Collection[str]) -> Window:
        """Read the window of an axis, whose name is that of a component."""
        newest, group = fields.number(NEWEST, 0), fields.text(GROUP)
        if newest < 1:
            fields.report(f"`{NEWEST}` must be at least 1", fields.place(NEWEST), hint="such as `newest: 3`")
        if group and (group == axis or group not in axes):
            hint = suggestion(group, [name for name in axes if name != axis])
            fields.report(f"`{GROUP}` must name another axis", fields.place(GROUP), hint=hint)
            group = ""
        fields.finish()
        self.axes.add(axis)
        component, spot = self.components.get(axis), fields.place(NEWEST)
        if component is None:
            mistakes = tuple(self.mistakes_of(axis))
            fields.problems.extend(mistakes)
            if not mistakes:
                label = "an axis with `newest` has the name of a component"
                hint = suggestion(axis, self.components)
                fields.report(f"unknown component `{axis}`", spot, label, hint)
            return Window(newest, group)
        versions = sorted({release.version for release in component.releases}, key=Version, reverse=True)
        return Window(newest, group, tuple(Scalar(version, spot) for version in versions))

    def cells(
        self, fields: Fields, axes: Mapping[str, Sequence[Cell]], windows: Mapping[str, Window]
    ) -> list[Cell]:
        """Return the combinations of the axes that are in all windows and resolve."""
        values = {**axes}
        # By axis with a group: the pairs of values that are in the window
        pairs: dict[str, set[tuple[str, str]]] = {}

        def combinations(**fixed: Cell) -> Iterator[Cell]:
            lists = [[fixed[axis]] if axis in fixed else items for axis, items in values.items()]
            for parts in product(*lists):
                cell = {name: value for part in parts for name, value in part.items()}
                chosen = {axis: key(part) for axis, part in zip(values, parts, strict=True)}
                if all((chosen[windows[axis].group], chosen[axis]) in pairs[axis] for axis in pairs):
                    yield cell

        def key(part: Cell) -> str:
            return repr([(name, value.text) for name, value in part.items()])

        # A window in a group counts for the values that the group has in the end
        for axis, window in sorted(windows.items(), key=lambda item: bool(item[1].group)):
            chosen: list[tuple[str, Cell]] = []
            for group in values[window.group] if window.group else ({},):
                series: set[tuple[int, ...]] = set()
                fixed = {window.group: group} if window.group else {}
                for part in axes[axis]:
                    of = Version(part[axis].text).release[:2]
                    if len(series) == window.newest:
                        break
                    if of not in series and any(
                        self._resolves(fields, cell) for cell in combinations(**fixed, **{axis: part})
                    ):
                        series.add(of)
                        chosen.append((key(group), part))
            values[axis] = [part for part in axes[axis] if any(part is other for _, other in chosen)]
            if window.group:
                pairs[axis] = {(group_key, key(part)) for group_key, part in chosen}
        cells = [cell for cell in combinations() if self._resolves(fields, cell)]
        if not cells and not fields.problems:
            message = f"no combination in the window of {format_names(windows)} resolves"
            fields.report(message, fields.location, hint=next(iter(self.left_out), ""))
        return cells

    def _resolves(self, fields: Fields, cell: Cell) -> bool:
        values = tuple((name, value.text) for name, value in cell.items())
        if values not in self.refusals:
            if len(self.refusals) == _MAX_TRIALS:
                message = f"the windows are not full after {_MAX_TRIALS:,} combinations"
                fields.report(message, fields.location, hint="lower `newest`, or list the values of an axis")
                return False
            self.refusals[values] = self.refusal_of(cell)
        return not self.refusals[values]
