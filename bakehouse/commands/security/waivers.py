"""Waivers of vulnerabilities: OpenVEX documents in the directory `.vex` of a project.

`author` is the owner of a document's waivers. OpenVEX has no expiry, so `status_notes` contains it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from packageurl import PackageURL
from packaging.utils import canonicalize_name

from bakehouse.commands.security.document import DocumentError, DocumentValue, parse, read
from bakehouse.commands.security.findings import PURL_KINDS, PackageFinding, PackageKind, Waiver
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.files import display_path, matching_paths
from bakehouse.util.suggest import suggestion

DIRECTORY = ".vex"
_CONTEXT = "https://openvex.dev/ns"
_EXPIRES = re.compile(r"\bexpires:? +(\d{4}-\d\d-\d\d)\b[;,.]? *")
_STATUSES = {"not_affected": "not affected", "affected": "accepted", "fixed": "fixed"}
_OPEN = "under_investigation"


@dataclass(frozen=True, slots=True)
class Product:
    """Packages that a statement is about."""

    image: str = ""
    """Empty for all images."""
    kind: PackageKind = "other"
    package: str = ""
    """Empty for all packages of the image."""
    version: str = ""
    """Empty for all versions."""

    def matches(self, finding: PackageFinding, image: str) -> bool:
        if self.image not in ("", image):
            return False
        if not self.package:
            return True
        names = {finding.name, *finding.packages}
        return finding.kind == self.kind and self.package in names and self.version in ("", finding.version)


@dataclass(frozen=True, slots=True)
class VexStatement:
    """An OpenVEX statement that waives a vulnerability."""

    vulnerability: str
    names: frozenset[str]
    products: tuple[Product, ...]
    status: str
    reason: str
    owner: str
    expires: date
    location: Location

    def waiver(self, id: str, images: tuple[str, ...], today: date) -> Waiver:
        return Waiver(
            vulnerability=id,
            status=self.status,
            reason=self.reason,
            owner=self.owner,
            expires=self.expires.isoformat(),
            is_expired=today > self.expires,
            images=images,
        )


def load(root: Path) -> tuple[VexStatement, ...]:
    """Read the waivers of a project. Raises RecipeError with all mistakes."""
    problems = Problems()
    statements: list[VexStatement] = []
    for path in matching_paths(root / DIRECTORY, "*.json"):
        content = read(path)
        try:
            document = parse(content)
            if not document["@context"].needed.startswith(_CONTEXT):
                message = f"`@context` must start with `{_CONTEXT}`"
                raise DocumentError(message)
            owner = document["author"].needed
            for statement in document["statements"]:
                _add(statement, owner, path, content, statements, problems)
        except DocumentError as error:
            message = f"`{display_path(path)}` is not a valid OpenVEX document: {error}"
            problems.add(Diagnostic(message, Location(path, 1, 1)))
    problems.raise_as(RecipeError)
    return tuple(statements)


def _add(
    node: DocumentValue,
    owner: str,
    path: Path,
    content: bytes,
    statements: list[VexStatement],
    problems: Problems,
) -> None:
    """Add a statement; one that cannot waive anything is a problem."""
    vulnerability = node["vulnerability"]
    name = vulnerability["name"].needed
    location = _location(path, content, name)
    status, notes = node["status"].needed, node["status_notes"].text
    if status == _OPEN:
        return
    if status not in _STATUSES:
        message = f"`{status}` is not a status of OpenVEX"
        problems.add(Diagnostic(message, location, hint=suggestion(status, (*_STATUSES, _OPEN))))
        return
    reason = _reason(node, status, _EXPIRES.sub("", notes).strip())
    expires = _expiry(notes)
    products = tuple(_products(node["products"]))
    if not reason:
        key = "action_statement" if status == "affected" else "justification"
        key = "status_notes" if status == "fixed" else key
        message = f"the waiver of `{name}` has no reason"
        problems.add(Diagnostic(message, location, hint=f"add it as `{key}`"))
    if expires is None:
        message = f"the waiver of `{name}` has no valid expiry"
        hint = 'add it to `status_notes`, such as "expires: 2027-01-31"'
        problems.add(Diagnostic(message, location, hint=hint))
    elif reason and products:
        names = frozenset((name, *vulnerability["aliases"].texts))
        made = VexStatement(name, names, products, _STATUSES[status], reason, owner, expires, location)
        statements.append(made)
    if not products:
        message = f"the waiver of `{name}` has no products"
        hint = 'add one, such as {"@id": "pkg:deb/debian/openssl"}'
        problems.add(Diagnostic(message, location, hint=hint))


def _location(path: Path, content: bytes, name: str) -> Location:
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if f'"{name}"' in line:
            return Location(path, number, line.index(name) + 1, len(name), line)
    return Location(path, 1, 1)


def _reason(node: DocumentValue, status: str, notes: str) -> str:
    """Return the text that a status needs; OpenVEX has no field of its own for `fixed`."""
    if status == "fixed":
        return notes
    keys = ("action_statement",) if status == "affected" else ("justification", "impact_statement")
    return ": ".join(filter(None, (node[key].text for key in keys)))


def _expiry(notes: str) -> date | None:
    match = _EXPIRES.search(notes)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def _products(nodes: Iterable[DocumentValue]) -> Iterator[Product]:
    for node in nodes:
        purl = _purl(node)
        if purl.type != "oci":
            yield _package(purl)
            continue
        if purl.version:
            message = f"`{node.path}` names a digest, but every build has a different digest"
            raise DocumentError(message)
        packages = [
            replace(_package(_purl(component)), image=purl.name) for component in node["subcomponents"]
        ]
        yield from packages or [Product(purl.name)]


def _package(purl: PackageURL) -> Product:
    name = canonicalize_name(purl.name) if purl.type == "pypi" else purl.name
    return Product("", PURL_KINDS.get(purl.type, "other"), name, purl.version or "")


def _purl(node: DocumentValue) -> PackageURL:
    text = node["identifiers"]["purl"].text or node["@id"].text
    try:
        return PackageURL.from_string(text)
    except ValueError as error:
        message = f"`{node.path}` has no valid package URL"
        raise DocumentError(message) from error


def apply(
    statements: Iterable[VexStatement], findings: Iterable[PackageFinding], today: date
) -> tuple[tuple[PackageFinding, ...], frozenset[VexStatement]]:
    """Return the findings with their waivers, and the statements that match a finding."""
    statements = tuple(statements)
    used: set[VexStatement] = set()
    waived = []
    for finding in findings:
        waivers = []
        for vulnerability in finding.vulnerabilities:
            for statement in statements:
                if statement.names.isdisjoint((vulnerability.id, *vulnerability.aliases)):
                    continue
                images = dict.fromkeys(usage.image for usage in finding.usages)
                matching = tuple(name for name in images if _matches(statement, finding, name))
                if matching:
                    used.add(statement)
                    waivers.append(statement.waiver(vulnerability.id, matching, today))
        waived.append(replace(finding, waivers=tuple(waivers)))
    return tuple(waived), frozenset(used)


def _matches(statement: VexStatement, finding: PackageFinding, image: str) -> bool:
    return any(product.matches(finding, image) for product in statement.products)


def warnings(
    statements: Iterable[VexStatement],
    used: Collection[VexStatement],
    images: Sequence[str],
    scanned: Collection[PackageKind],
) -> Iterator[Diagnostic]:
    """Yield waivers of unknown images, and those that match no finding of packages of the scanned kinds."""
    for statement in statements:
        unknown = [
            product.image for product in statement.products if product.image and product.image not in images
        ]
        for name in dict.fromkeys(unknown):
            message = f"the waiver of `{statement.vulnerability}` names an unknown image `{name}`"
            yield Diagnostic(message, statement.location, hint=suggestion(name, images))
        kinds = {product.kind for product in statement.products}
        if scanned and kinds.issubset(scanned) and statement not in used and not unknown:
            message = f"the waiver of `{statement.vulnerability}` matches no finding"
            hint = "remove it, or correct its vulnerability and products"
            yield Diagnostic(message, statement.location, hint=hint)
