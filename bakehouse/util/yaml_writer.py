"""Text of YAML documents."""

from collections.abc import Iterable

import yaml

_WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)


def dump_documents(documents: Iterable[object]) -> str:
    """Return documents as YAML, each after a separator line."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=_WIDTH)
