"""The API's model of a CreateTrainingJob request, from botocore."""

import os
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from bakehouse.catalog.cache import derived

_OPERATION = "CreateTrainingJob"
_UNUSED = ("documentation",)

Definitions = dict[str, dict[str, Any]]


class Shape:
    """The type of a field, with the property names of botocore, whose own class takes long to import."""

    def __init__(self, name: str, definitions: Definitions) -> None:
        self.name = name
        self._definitions = definitions
        self.metadata: Mapping[str, Any] = definitions[name]
        self.type_name: str = self.metadata["type"]
        self.enum: list[str] = self.metadata.get("enum", [])
        self.required_members: list[str] = self.metadata.get("required", [])

    @cached_property
    def members(self) -> dict[str, "Shape"]:
        return {name: self._of(member) for name, member in self.metadata.get("members", {}).items()}

    @cached_property
    def member(self) -> "Shape":
        return self._of(self.metadata["member"])

    @cached_property
    def key(self) -> "Shape":
        return self._of(self.metadata["key"])

    @cached_property
    def value(self) -> "Shape":
        return self._of(self.metadata["value"])

    def _of(self, reference: Mapping[str, str]) -> "Shape":
        return Shape(reference["shape"], self._definitions)


@cache
def request_shape() -> Shape:
    """Return the type of the request."""
    definitions = _definitions()
    return Shape(next(iter(definitions)), definitions)


@cache
def botocore_shape() -> Any:
    """Return the type of the request as botocore's own class, which takes long to import."""
    from botocore.model import ShapeResolver  # type: ignore[import-untyped]

    definitions = _definitions()
    return ShapeResolver(definitions).get_shape_by_name(next(iter(definitions)))


def _definitions() -> Definitions:
    return derived("api-model", (os.environ.get("AWS_DATA_PATH", ""),), _read_definitions, ())


def _read_definitions() -> Definitions:
    """Read the definitions of the request and of all its fields, the request's first."""
    from botocore.loaders import Loader  # type: ignore[import-untyped]

    paths = filter(None, os.environ.get("AWS_DATA_PATH", "").split(os.pathsep))
    loader = Loader(extra_search_paths=[os.path.expanduser(path) for path in paths])  # noqa: PTH111
    model = loader.load_service_model("sagemaker", "service-2")
    definitions: Definitions = {}
    left = [model["operations"][_OPERATION]["input"]["shape"]]
    while left:
        name = left.pop()
        if name in definitions:
            continue
        definition = definitions[name] = _plain(model["shapes"][name])
        members = [*definition.get("members", {}).values()]
        members += [definition[key] for key in ("member", "key", "value") if key in definition]
        left += [member["shape"] for member in members]
    return definitions


def _plain(value: Any) -> Any:
    """Return a part of the model in built-in types, without its descriptions."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in _UNUSED}
    return [_plain(item) for item in value] if isinstance(value, list) else value
