"""Reads back from inside a built image what it really holds: declared equals installed, for every component.

Each component's smoke.py answers for it; `probes/checks.py` asks them all in one container.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.plan.model import Image, Part
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest

PROBES = Path(__file__).parents[1] / "probes"
ASK_SECONDS = 600.0
_FOLDER = "/run/bakehouse"
_CONTENTS = Part("contents", "", "", PROBES / "contents.py")
"""What no component can tell of itself: that files have one owner, that nothing is left over."""


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True)
class VersionResult:
    """What one component says it is."""

    component: str
    declared: str
    installed: str | None = None
    """None: it has no way to tell, or `error` says why it could not."""
    error: str = ""
    source: str = ""
    """The smoke file, with the line where it went wrong."""

    @property
    def agrees(self) -> bool:
        if self.error:
            return False
        return self.installed is None or same_version(self.declared, self.installed)


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """How one `check_…` function of a component ended."""

    component: str
    check: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """What all components of an image answered."""

    versions: tuple[VersionResult, ...]
    checks: tuple[CheckAnswer, ...]
    seconds: float
    log: Path


@dataclass(frozen=True, slots=True)
class Verified:
    """An image found to hold what it declares."""

    digest: Digest
    installed: Mapping[str, str]
    not_asked: tuple[str, ...]
    """Components that have no way to tell their version."""


def verify(engine: Engine, image: Image, digest: Digest, state: Path) -> Verified:
    """Compare what `image` declares with what is installed in it, or recall that this was done.

    Remembered by digest under `state`; asked again when declarations or smoke files have changed since.
    """
    record = state / "verified" / f"{digest.removeprefix('sha256:')}.json"
    asked = _question(image.all_parts)
    if known := _recall(record, digest, asked):
        return known
    answers = run_probes(engine, image, digest, log=state / "verified" / image.name / "components.log")
    if wrong := [answer for answer in answers.versions if not answer.agrees]:
        raise BuildError(*(mismatch(image, digest, answer, answers.log) for answer in wrong))
    verified = Verified(
        digest,
        {answer.component: answer.installed for answer in answers.versions if answer.installed is not None},
        tuple(answer.component for answer in answers.versions if answer.installed is None),
    )
    content = {"asked": asked, **asdict(verified)}
    write_whole(record, json.dumps(content, indent=2, sort_keys=True) + "\n")
    return verified


def run_probes(
    engine: Engine,
    image: Image,
    digest: Digest,
    *,
    log: Path,
    with_checks: bool = False,
    seconds: float = ASK_SECONDS,
    gpus: int = 0,
) -> ProbeResults:
    """Start one container, in which every component that can answer says its version and runs its checks."""
    parts = (*image.all_parts, _CONTENTS) if with_checks else image.all_parts
    asked = tuple(part for part in parts if part.smoke)
    started = time.monotonic()
    if not asked:
        return read_results(parts, (), 0.0, log)
    options = (*(("--checks",) if with_checks else ()), "--seconds", str(seconds / 2))
    files = {f"{_FOLDER}/smoke/{part.component}.py": _bytes(part) for part in asked}
    spec = ContainerSpec(
        image=digest,
        command=(
            *("python3", f"{_FOLDER}/checks.py"),
            *options,
            *(f"{part.component}={_FOLDER}/smoke/{part.component}.py" for part in asked),
        ),
        files={**files, f"{_FOLDER}/checks.py": (PROBES / "checks.py").read_bytes()},
        gpus=tuple(range(gpus)),
        image_name=image.name,
    )
    with engine.container(spec) as container:
        container.start(log)
        ended = container.wait(seconds)
        container.stop(grace=0)
        lines = container.stdout().splitlines()
    answers = read_results(parts, lines, time.monotonic() - started, log)
    if ended is None:
        return _cut_short(answers, f"no answer within {seconds:g} s")
    return _cut_short(answers, f"exited with {ended.exit_code}")


def read_results(parts: Iterable[Part], lines: Iterable[str], seconds: float, log: Path) -> ProbeResults:
    """Turn the lines that `probes/checks.py` printed into answers, one for each part, in the parts' order."""
    versions: dict[str, dict[str, Any]] = {}
    checks: dict[tuple[str, str], CheckAnswer] = {}
    brought: dict[str, dict[str, str]] = {}
    parts = tuple(parts)
    smoke = {part.component: part.smoke for part in parts}
    for fields in map(json.loads, lines):
        component = fields["component"]
        source = f"{smoke[component]}:{fields['line']}" if fields.get("line") else str(smoke[component])
        if "check" in fields:
            checks[component, fields["check"]] = _check_answer(fields, source)
        elif "ended" in fields:
            unfinished = [key for key, answer in checks.items() if key[0] == component and _is_open(answer)]
            for key in unfinished:
                checks[key] = replace(checks[key], reason=fields["ended"])
            if not unfinished:
                versions[component] = {"error": fields["ended"], "source": source}
        else:
            error = fields.get("error", "")
            versions[component] = {"installed": fields.get("installed"), "error": error, "source": source}
            brought[component] = fields.get("provided", {})
    unanswered = {"error": _SILENT}
    own = (
        VersionResult(
            part.component, part.version, **(versions.get(part.component, unanswered) if part.smoke else {})
        )
        for part in parts
        if part.version or versions.get(part.component, {}).get("error")
    )
    others = (
        VersionResult(name, _as_exact(declared, installed), installed, source=str(part.smoke))
        for part in parts
        for name, declared in part.provides
        if (installed := brought.get(part.component, {}).get(name)) is not None
    )
    return ProbeResults(
        (*own, *others),
        tuple(checks.values()),
        seconds,
        log,
    )


def _as_exact(declared: str, installed: str) -> str:
    """What is declared, cut to the precision of an answer: torch says CUDA 13.0 where 13.0.3 is declared."""
    numbers = declared.split(".")[: len(installed.split("."))]
    return ".".join(numbers)


def same_version(declared: str, installed: str) -> bool:
    """Whether an installed version is the declared one; a build tag such as `+cpu` may be left undeclared."""
    if declared == installed:
        return True
    try:
        want, have = Version(declared), Version(installed)
    except InvalidVersion:
        return False
    return want == have or (want.local is None and want == Version(have.public))


def mismatch(image: Image, digest: Digest, answer: VersionResult, log: Path) -> Diagnostic:
    """A component that is not what the recipe says, or can't even say what it is."""
    if answer.error:
        message = f"`{answer.component}` in image `{image.name}` can't say its version"
        found = ("answered", answer.error)
    else:
        message = f"`{answer.component}` in image `{image.name}` is not the version that was declared"
        found = ("installed", answer.installed or "")
    facts = (
        ("image", f"{image.name} {digest[:19]}"),
        ("declared", answer.declared),
        found,
        *((("from", answer.source),) if answer.source else ()),
        ("full log", str(log)),
    )
    return Diagnostic(message, facts=facts)


_SILENT = "no answer"


def _is_open(answer: CheckAnswer) -> bool:
    return answer.outcome is Outcome.FAILED and not answer.reason


def _check_answer(fields: Mapping[str, Any], source: str) -> CheckAnswer:
    # A check that only started counts as failed until its end is told.
    outcome = Outcome.FAILED if fields["outcome"] == "started" else Outcome(fields["outcome"])
    return CheckAnswer(
        fields["component"],
        fields["check"],
        outcome,
        fields.get("reason", ""),
        fields.get("seconds", 0.0),
        source,
    )


def _cut_short(answers: ProbeResults, reason: str) -> ProbeResults:
    """Give the container's own end as the reason of what was never answered."""
    return replace(
        answers,
        versions=tuple(
            replace(answer, error=reason) if answer.error == _SILENT else answer
            for answer in answers.versions
        ),
        checks=tuple(
            replace(answer, reason=reason) if _is_open(answer) else answer for answer in answers.checks
        ),
    )


def _question(parts: Iterable[Part]) -> dict[str, list[str]]:
    """What an answer depends on besides the image: the declared versions, and how they are asked for."""
    return {
        part.component: [
            part.version,
            *map("=".join, part.provides),
            hashlib.sha256(_bytes(part)).hexdigest() if part.smoke else "",
        ]
        for part in parts
    }


def _bytes(part: Part) -> bytes:
    return part.smoke.read_bytes() if part.smoke else b""


def _recall(record: Path, digest: Digest, asked: Mapping[str, list[str]]) -> Verified | None:
    try:
        known = json.loads(record.read_text())
        if known["asked"] == asked and known["digest"] == digest:
            return Verified(digest, known["installed"], tuple(known["not_asked"]))
    except (OSError, ValueError, KeyError, TypeError):
        # Missing or unreadable: asking again costs seconds.
        pass
    return None
