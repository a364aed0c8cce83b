"""The Jinja environment of all templates, which turns data into text.

Templates of components must not be able to access this machine. A template can read the data of its stage,
and call macros and pure methods of text and collections. It cannot access files, modules or methods of other
objects.
"""

from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_DATA = (str, bytes, int, float, type(None), tuple, list, dict, set, frozenset, Mapping)
"""Types whose methods only compute; the environment refuses those that change an object."""


def sandbox(methods: frozenset[Callable[..., object]] = frozenset(), **options: Any) -> "Environment":
    """Return an environment with options of jinja2; `methods` are functions that may be called as methods."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    verdicts: dict[tuple[type, str, bool], bool] = {}

    class Sandbox(ImmutableSandboxedEnvironment):
        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            # All checks depend on these alone, and templates read the same attributes many times
            key = type(obj), attr, callable(value)
            if key not in verdicts:
                verdicts[key] = self._is_safe(obj, attr, value)
            return verdicts[key]

        def _is_safe(self, obj: Any, attr: str, value: Any) -> bool:
            if not super().is_safe_attribute(obj, attr, value):
                return False
            if isinstance(obj, _DATA) or type(obj).__module__.startswith("jinja2."):
                return True
            if not type(obj).__module__.startswith("bakehouse."):
                return False
            return not callable(value) or getattr(type(obj), attr, None) in methods

        def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
            # The globals are constant, and jinja2 copies its own ChainMap of them slowly
            return {**self.globals, **(d or {})}

    environment = Sandbox(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)
    # It returns random text
    del environment.globals["lipsum"]
    return environment
