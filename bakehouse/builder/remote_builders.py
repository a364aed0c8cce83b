"""Remote builders of a build: which are available, and which continues if one is lost."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from bakehouse.engine import builder_preflight, builder_watch
from bakehouse.engine.builder_watch import BuilderLost, Watch
from bakehouse.engine.buildkit_errors import EngineGone
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.format import format_names
from bakehouse.util.terminal import Reporter

T = TypeVar("T")
_MAX_ATTEMPTS = 3
"""Maximum attempts for a call of buildx, on several builders or on one that was restarted."""


@dataclass
class RemoteBuilders:
    """Builders in the order in which they are tried."""

    names: Sequence[str]
    report: Reporter
    require: Callable[[str], object] = builder_preflight.require_builder
    watch: Callable[[str], contextlib.AbstractContextManager[Watch]] = builder_watch.watch
    _available: tuple[str, ...] = field(default=(), init=False)

    def available(self) -> tuple[str, ...]:
        """Return the builders that pass their preflight. Raises EngineError with the faults of all."""
        if not self._available:
            names = tuple(dict.fromkeys(self.names))
            with ThreadPoolExecutor(len(names)) as threads:
                faults = dict(zip(names, threads.map(self._faults, names), strict=True))
            self._available = tuple(name for name in names if not faults[name])
            diagnostics = [diagnostic for name in names for diagnostic in faults[name]]
            if not self._available:
                raise EngineError.of(*diagnostics)
            for diagnostic in diagnostics:
                self.report(f"{diagnostic.message}; building on {format_names(self._available)}")
        return self._available

    def run(self, name: str, call: Callable[[str, Watch], T]) -> T:
        """Call buildx on a builder, and on another one if it is lost. Raises EngineError."""
        losses = 0
        while True:
            try:
                with self.watch(name) as watched:
                    try:
                        return call(name, watched)
                    except EngineGone as error:
                        answer = " ".join(error.diagnostics[0].tail) or error.diagnostics[0].message
                        raise builder_watch.lost(name, answer) from error
            except BuilderLost as error:
                losses += 1
                # Builders with faults may work now, and so may the one that was lost.
                others = sorted(self.names, key=lambda other: (other == name, other not in self._available))
                if losses == _MAX_ATTEMPTS:
                    raise
                successor = next((other for other in others if not self._faults(other)), None)
                if successor is None:
                    raise
                name = successor
                self.report(f"{error.diagnostics[0].message}; continuing on `{name}`")

    def _faults(self, name: str) -> tuple[Diagnostic, ...]:
        try:
            self.require(name)
        except EngineError as error:
            return error.diagnostics
        return ()


def is_remote(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a build uses other builders than the engine of the docker client."""
    return bool(names) and not (len(names) == 1 and builder_preflight.is_own_engine(names[0], environment))
