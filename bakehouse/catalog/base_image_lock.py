"""Reader of locks of vendor bases: the files that each step adds, as apt chose them.

A lock is `apt/bases/<base>.packages` in a folder of recipes: a stanza for the base, one for each step, and
then a `Packages` index of all that they add.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bakehouse.catalog.apt_lock import NEEDED, SUFFIX, AptLock, Deb, NotLocked, apt_locks, deb_of, stanzas
from bakehouse.errors import Diagnostic, Location, Reason, RecipeError

FOLDER = "apt/bases"
BASE, STEP, ADDS = "Base", "Step", "Adds"
"""The fields of the stanzas that are no package's."""
_PINNED = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}")
_RESTORE = "restore the file from version control, or delete it and lock the images on that base again"
Step = tuple[str, ...]
"""Packages requested by a step and all steps before it, sorted."""


@dataclass(frozen=True)
class BaseLock:
    """The lock of one base, read when a step is asked for."""

    path: Path
    pinned: str
    """`nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:…`: the base that it holds for."""

    @property
    def reference(self) -> str:
        return self.pinned.partition("@")[0]

    @property
    def debs(self) -> tuple[Deb, ...]:
        """Every package that is locked, by name. Raises RecipeError where the lock can't be read."""
        return tuple(deb for _, deb in sorted(self._read[0].items()))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The locked steps. Raises RecipeError if the lock cannot be read."""
        return tuple(self._read[1])

    def adds(self, names: Iterable[str]) -> tuple[Deb, ...]:
        """Return the packages that apt adds to the base for `names`, by name.

        Raises NotLocked where that is not in the lock, RecipeError where it can't be read.
        """
        step = step_of(names)
        if not step:
            return ()
        if step not in self._read[1]:
            raise NotLocked(" ".join(step))
        return self._read[1][step]

    @cached_property
    def _read(self) -> tuple[Mapping[str, Deb], Mapping[Step, tuple[Deb, ...]]]:
        def damaged(line: int, message: str) -> None:
            raise _mistake(self.path, line, message)

        debs: dict[str, Deb] = {}
        added: dict[Step, tuple[int, list[str]]] = {}
        for line, fields in stanzas(_text(self.path), damaged):
            if STEP in fields:
                step = tuple(fields[STEP].split())
                if ADDS not in fields:
                    damaged(line, f"a step needs `{ADDS}`, which may be empty")
                if step in added:
                    damaged(line, f"duplicate step `{fields[STEP]}` in `{self.path.name}`")
                added[step] = line, fields[ADDS].split()
            elif BASE in fields:
                if fields[BASE] != self.pinned:
                    damaged(line, f"`{self.path.name}` belongs to two bases")
            else:
                deb = deb_of(fields)
                if deb is None:
                    raise _mistake(
                        self.path,
                        line,
                        "incomplete package in a lock",
                        f"a package needs {', '.join(NEEDED)}",
                    )
                if deb.name in debs:
                    damaged(line, f"duplicate package `{deb.name}` in `{self.path.name}`")
                debs[deb.name] = deb
        for line, names in added.values():
            if missing := [name for name in names if name not in debs]:
                damaged(line, f"a step adds `{missing[0]}`, but the lock does not describe it")
        return debs, {step: tuple(debs[name] for name in sorted(names)) for step, (_, names) in added.items()}


@dataclass(frozen=True, slots=True)
class AptLocks:
    """All locked packages of distributions."""

    suites: Mapping[str, AptLock]
    """Locks of suites that bases are bootstrapped from."""
    bases: Mapping[str, BaseLock]
    """Locks of vendor bases, by reference with digest."""

    @property
    def debs(self) -> tuple[Deb, ...]:
        """Every package that is locked. Raises RecipeError where a lock can't be read."""
        of_suites = (deb for lock in self.suites.values() for deb in lock.debs)
        return (*of_suites, *(deb for lock in self.bases.values() for deb in lock.debs))

    def of_reference(self, reference: str) -> BaseLock | None:
        """A lock of a base that has this name, of whatever digest."""
        return next((one for one in self.bases.values() if one.reference == reference), None)


def read_locks(roots: Iterable[Path]) -> AptLocks:
    """The locks in folders of recipes; a later folder's come before an earlier one's.

    Raises RecipeError where one doesn't say what base it is of.
    """
    folders = tuple(roots)
    bases = {}
    for root in folders:
        for path in sorted((root / FOLDER).glob(f"*{SUFFIX}")):
            pinned = _heading(path)
            bases[pinned] = BaseLock(path, pinned)
    return AptLocks(apt_locks(folders), bases)


def step_of(names: Iterable[str]) -> Step:
    """A step by what has been asked for when it is done."""
    return tuple(sorted({*names}))


def file_of(pinned: str) -> str:
    """Return the file name of a base's lock: its name without the registry, and a part of its digest."""
    reference, _, digest = pinned.partition("@sha256:")
    return f"{re.sub(r'[^A-Za-z0-9._]+', '-', reference)}-{digest[:8]}{SUFFIX}"


def _heading(path: Path) -> str:
    for line, fields in stanzas(_text(path)):
        if _PINNED.fullmatch(fields.get(BASE, "")):
            return fields[BASE]
        raise _mistake(
            path, line, f"a lock of a base begins with `{BASE}: <reference>@sha256:<64 hex digits>`"
        )
    raise _mistake(path, 1, f"`{path.name}` is empty")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _mistake(path, 1, f"cannot read `{path.name}` as UTF-8 text") from error


def _mistake(path: Path, line: int, message: str, reason: str = "") -> RecipeError:
    reasons = (Reason(reason),) if reason else ()
    return RecipeError(Diagnostic(message, Location(path, line, 1), reasons=reasons, hint=_RESTORE))
