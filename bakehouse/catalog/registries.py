"""Reads what is said of a vendor's images: where they are in each region, what of them has to stay."""

import re
from collections.abc import Collection, Mapping

from bakehouse.catalog.component import Component, Frozen, Registries
from bakehouse.errors import Diagnostic, Problems
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields

_ANY = "any"
_PACKAGES = re.compile("[a-z0-9*]+(-[a-z0-9*]+)*")
_REGION = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
_HOST = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5})?(/[a-z0-9]+([._-][a-z0-9]+)*)*")


def registries(fields: Fields) -> Registries | None:
    """A component's own table of hosts by region, or the name of the component whose table it is."""
    hosts = {}
    for region, host in fields.text_pairs("registries"):
        if not _REGION.fullmatch(region.text):
            fields.report(f"`{region.text}` is not the name of a region", region.location)
        if not _HOST.fullmatch(host.text):
            fields.report(f"`{host.text}` is not the host of a registry", host.location)
        hosts[region.text] = host.text
    other = fields.text("registries_of")
    if hosts:
        return Registries(hosts, "", fields.place("registries"))
    return Registries({}, other, fields.place("registries_of")) if other else None


def frozen(fields: Fields) -> tuple[Frozen, ...]:
    """The Python packages that a base has to keep, each with what tells their version, or `any`."""
    found = []
    for name, value in fields.text_pairs("frozen"):
        if not _PACKAGES.fullmatch(name.text):
            label = "lowercase letters, digits, `-` and `*`"
            fields.report(f"`{name.text}` is not a name or glob of Python packages", name.location, label)
        found.append(Frozen(name.text, "" if value.text == _ANY else value.text, name.location))
    return tuple(found)


def borrowed(
    component: Component, components: Mapping[str, Component], unread: Collection[str], problems: Problems
) -> Registries | None:
    """A component's registries, with the table of the one that it names."""
    own = component.registries
    if own is None or not own.of:
        return own
    other = components.get(own.of)
    if other and other.registries and not other.registries.of:
        return other.registries
    if own.of not in unread:
        known = [one.name for one in components.values() if one.registries and not one.registries.of]
        message = f"`{own.of}` has no table of `registries`"
        problems.add(Diagnostic(message, own.location, hint=suggestion(own.of, known)))
    return None
