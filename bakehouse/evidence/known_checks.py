"""The state of an image by its checks, computed from the results of the checks as they are now.

Gates and pages ask `KnownChecks.blockers`, and nothing else. A result counts if its key is that of a
check of the image: a changed check has no result, whatever an earlier version of it gave.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster.check_keys import (
    base_keys_of,
    definition_of,
    definitions,
    long_definitions,
    program_of,
)
from bakehouse.cluster.smoke_report import CheckResult, Setup, age_of, transport_of
from bakehouse.evidence import check_rows
from bakehouse.plan.model import Image
from bakehouse.util.format import first_names, format_count
from bakehouse.util.oci import ContentId

MAX_AGE = timedelta(days=30)
"""Age up to which `promote` accepts results: the hosts and drivers of images change."""
OUTCOMES = (Outcome.NOT_TESTED, Outcome.PASSED, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class KnownChecks:
    """Results of the checks of one content, and the checks without one."""

    image: str
    content: ContentId
    checks: tuple[CheckResult, ...] = ()
    """The result of each check; those that cannot run in any setup that was used are not tested."""
    missing: tuple[str, ...] = ()
    """Checks that could run, but have no result as they are now."""
    changed: tuple[str, ...] = ()
    """The missing ones that had a result before they changed."""
    required: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if check.outcome is Outcome.FAILED)

    @property
    def has_passed(self) -> bool:
        """At least one check passed, none failed, and none is missing."""
        outcomes = {check.outcome for check in self.checks}
        return Outcome.PASSED in outcomes and Outcome.FAILED not in outcomes and not self.missing

    @property
    def transport(self) -> str:
        return transport_of(self.checks)

    @property
    def date(self) -> str:
        """Time of the oldest result; empty without one."""
        return min((check.date for check in self.checks if check.date), default="")

    @property
    def machine(self) -> str:
        return ", ".join(sorted({check.machine for check in self.checks if check.machine}))

    @property
    def summary(self) -> str:
        """The results as text: `20 of 22 checks; missing: mpi_2x2`; empty without a result."""
        outcomes: dict[str, Outcome] = {}
        for check in self.checks:
            name = program_of(check.name)
            outcomes[name] = max(outcomes.get(name, check.outcome), check.outcome, key=OUTCOMES.index)
        counts = Counter(outcomes.values())
        if not (counts[Outcome.PASSED] or counts[Outcome.FAILED]):
            return ""
        known = counts[Outcome.PASSED] + counts[Outcome.FAILED]
        parts = [f"{known} of {format_count(len(outcomes) + len(self.missing), 'check')}"]
        failed = [name for name, outcome in outcomes.items() if outcome is Outcome.FAILED]
        parts += [f"failed: {first_names(failed)}"] if failed else []
        parts += [f"missing: {first_names(self.missing)}"] if self.missing else []
        return "; ".join(parts)

    @property
    def blockers(self) -> tuple[str, ...]:
        """The reasons against a release, each as a clause; none if the image may be released.

        A required check that was not tested is a reason.
        """
        if not self.changed and not any(check.date for check in self.checks):
            return ("it was never smoke-tested",)
        if self.failed:
            return (f"its smoke test failed: {', '.join(f'`{name}`' for name in self.failed)}",)
        reasons = [f"{first_names(self.changed)} changed after the test"] if self.changed else []
        if never := [name for name in self.missing if name not in self.changed]:
            reasons.append(f"{first_names(never)} {'has' if len(never) == 1 else 'have'} no result")
        if not reasons and not any(check.outcome is Outcome.PASSED for check in self.checks):
            return ("its smoke test ran no check",)
        results = {check.name: check for check in self.checks}
        for name in self.required:
            check = results.get(name)
            if name in self.missing or program_of(name) in self.missing:
                continue
            if check is None:
                reasons.append(f"`{name}` is required but is in no report")
            elif check.outcome is not Outcome.PASSED:
                reason = f": {check.reason}" if check.reason else ""
                reasons.append(f"`{name}` is required but was not tested{reason}")
        return tuple(reasons)


def known_checks(
    project: ProjectSettings, image: Image, content: ContentId, *, max_age: timedelta | None = None
) -> KnownChecks:
    """Return what this machine knows of the checks of an image with some content.

    Checks that passed longer than `max_age` ago count as not tested. Failures count at any age.
    """
    rows = check_rows.load(project.state, content)
    if max_age is not None:
        rows = tuple(_without_stale_pass(row, max_age) for row in rows)
    return known_checks_by(rows, project, image, content)


def known_checks_by(
    rows: Iterable[CheckResult], project: ProjectSettings, image: Image, content: ContentId
) -> KnownChecks:
    """Return what results say of the checks of an image."""
    rows = check_rows.merge(row for row in rows if row.name != check_rows.VERSIONS)
    base_keys = base_keys_of(image, project.recipe_roots)
    setups = dict.fromkeys(row.setup for row in rows)
    known = {setup: definitions(image, setup, base_keys) for setup in setups or (Setup("train toolkit"),)}
    current = [
        row for row in rows if (found := definition_of(row.name, known[row.setup])) and found.key == row.key
    ]
    programs = {program_of(row.name) for row in current}
    current += [row for row in rows if row not in current and _is_long(row, image)]
    results = {row.name: row for row in sorted(current, key=lambda row: OUTCOMES.index(row.outcome))}
    checks: list[CheckResult] = []
    missing = []
    for name in dict.fromkeys(name for of_setup in known.values() for name in of_setup):
        checks += [row for row in results.values() if program_of(row.name) == name]
        possible = [of_setup[name] for of_setup in known.values() if name in of_setup]
        if name not in programs and any(definition.key for definition in possible):
            missing.append(name)
        elif name not in programs:
            checks.append(CheckResult(name, Outcome.NOT_TESTED, 0.0, possible[0].obstacle, ranks=0))
    had = {program_of(row.name) for row in rows}
    changed = tuple(name for name in missing if name in had)
    return KnownChecks(image.name, content, tuple(checks), tuple(missing), changed, image.required)


def _is_long(row: CheckResult, image: Image) -> bool:
    """Return whether a result is that of a check of the image that only runs if it is named."""
    definition = long_definitions(image, row.setup).get(row.name)
    return bool(definition and definition.key == row.key)


def _without_stale_pass(row: CheckResult, max_age: timedelta) -> CheckResult:
    if row.outcome is not Outcome.PASSED or age_of(row.date) <= max_age:
        return row
    reason = f"its result of {row.date[:10]} is older than {max_age.days} days"
    return replace(row, outcome=Outcome.NOT_TESTED, reason=reason)
