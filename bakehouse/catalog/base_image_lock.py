"""Reader of locks of vendor bases: the files that each step adds, as apt chose them.

A lock is `apt/bases/<base>.packages` in a recipe directory. It has a stanza for the base, one for each step,
and a `Packages` index of all packages that the steps add.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bakehouse.catalog.apt_lock import SUFFIX, AptLock, Deb, LockFile, NotLocked, apt_locks
from bakehouse.errors import Problems, RecipeError
from bakehouse.util.files import matching_paths

DIRECTORY = "apt/bases"
BASE, STEP, ADDS = "Base", "Step", "Adds"
"""Fields of the stanzas that do not describe packages."""
_PINNED = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}")
_RESTORE = "restore the file from version control, or delete it and lock the images on that base again"
Step = tuple[str, ...]
"""Packages requested by a step and all steps before it, sorted."""


@dataclass(frozen=True)
class BaseLock:
    """The lock of one base, read on first use."""

    path: Path
    pinned: str
    """The base with its digest: `nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:…`."""

    @property
    def reference(self) -> str:
        return self.pinned.partition("@")[0]

    @property
    def debs(self) -> tuple[Deb, ...]:
        """All locked packages, sorted by name. Raises RecipeError if the lock is unreadable."""
        return tuple(deb for _, deb in sorted(self._read[0].items()))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The locked steps. Raises RecipeError if the lock cannot be read."""
        return tuple(self._read[1])

    def adds(self, names: Iterable[str]) -> tuple[Deb, ...]:
        """Return the packages that apt adds to the base for `names`, by name.

        Raises NotLocked if the step is not locked, RecipeError if the lock is unreadable.
        """
        step = step_of(names)
        if not step:
            return ()
        if step not in self._read[1]:
            raise NotLocked(" ".join(step))
        return self._read[1][step]

    @cached_property
    def _read(self) -> tuple[Mapping[str, Deb], Mapping[Step, tuple[Deb, ...]]]:
        file = LockFile(self.path, _RESTORE)
        debs: dict[str, Deb] = {}
        added: dict[Step, tuple[int, list[str]]] = {}
        for line, fields in file.stanzas():
            if STEP in fields:
                step = tuple(fields[STEP].split())
                if ADDS not in fields:
                    file.fail(line, f"a step needs `{ADDS}`, which may be empty")
                if step in added:
                    file.fail(line, f"duplicate step `{fields[STEP]}` in `{self.path.name}`")
                added[step] = line, fields[ADDS].split()
            elif BASE in fields:
                if fields[BASE] != self.pinned:
                    file.fail(line, f"`{self.path.name}` belongs to two bases")
            else:
                deb = file.deb(line, fields)
                debs[deb.name] = deb
        for line, names in added.values():
            if missing := [name for name in names if name not in debs]:
                file.fail(line, f"a step adds `{missing[0]}`, but the lock does not describe it")
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
        """All locked packages. Raises RecipeError if a lock is unreadable."""
        of_suites = (deb for lock in self.suites.values() for deb in lock.debs)
        return (*of_suites, *(deb for lock in self.bases.values() for deb in lock.debs))

    def of_reference(self, reference: str) -> BaseLock | None:
        """Return a lock of a base with this name and any digest."""
        return next((lock for lock in self.bases.values() if lock.reference == reference), None)


def read_locks(roots: Iterable[Path]) -> AptLocks:
    """Read the locks in recipe directories; later directories take precedence.

    Raises RecipeError if locks do not name their bases.
    """
    directories = tuple(roots)
    bases = {}
    problems = Problems()
    for root in directories:
        for path in matching_paths(root / DIRECTORY, f"*{SUFFIX}"):
            try:
                pinned = _heading(path)
            except RecipeError as error:
                problems.extend(error.diagnostics)
            else:
                bases[pinned] = BaseLock(path, pinned)
    problems.raise_as(RecipeError)
    return AptLocks(apt_locks(directories), bases)


def step_of(names: Iterable[str]) -> Step:
    """Return the step that requests `names`, including those of earlier steps."""
    return tuple(sorted({*names}))


def file_of(pinned: str) -> str:
    """Return the file name of a base's lock: its name without the registry, and a part of its digest."""
    reference, _, digest = pinned.partition("@sha256:")
    return f"{re.sub(r'[^A-Za-z0-9._]+', '-', reference)}-{digest[:8]}{SUFFIX}"


def _heading(path: Path) -> str:
    """Return the base of a lock, which is its first stanza."""
    file = LockFile(path, _RESTORE)
    line, fields = next(file.stanzas(), (1, None))
    if fields is None:
        file.fail(1, f"`{path.name}` is empty")
    if not _PINNED.fullmatch(fields.get(BASE, "")):
        file.fail(line, f"a lock of a base begins with `{BASE}: <reference>@sha256:<64 hex digits>`")
    return fields[BASE]
