"""The policy of a project: signed statements that an image needs to be promoted or launched."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bakehouse.catalog import consent
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.trust_settings import Policy
from bakehouse.cluster.smoke_report import MAX_CLOCK_DIFFERENCE
from bakehouse.errors import Reason, TrustError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.registry import destination
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import short
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.trust import bundle
from bakehouse.trust.bundle import SIGNATURE, RefusedError, SignedStatement
from bakehouse.trust.keys import PublicKey, read_public_key
from bakehouse.trust.provenance import UNPINNED
from bakehouse.trust.statements import PROVENANCE, REBUILD, SBOM, TESTS
from bakehouse.util.deadline import OverdueError
from bakehouse.util.files import is_file, read_text, write_whole
from bakehouse.util.format import format_count
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_MAX_REFUSED = 5
_TYPES = {"signature": SIGNATURE, "provenance": PROVENANCE, "sbom": SBOM}
_TITLES = {"signature": "signature", "provenance": "provenance", "sbom": "SBOM"}


@dataclass(frozen=True, slots=True)
class _Tests:
    """Test results that a key signed."""

    passed: bool
    failed: tuple[str, ...]
    finished: datetime | None
    """None if the statement has no time, for example if another tool made it."""
    key: PublicKey


def require(project: ProjectSettings, record: ReleaseRecord, report: Reporter) -> None:
    """Raise TrustError if the project has a policy that does not accept a release."""
    require_consent(project)
    if project.policy:
        with destination.registry(project, record.registry, report) as registry:
            check_image(project.policy, record, registry, RetryPolicy())


def require_consent(project: ProjectSettings) -> None:
    """Record the project's policy; raise TrustError if it accepts more than the recorded one."""
    project.require_consent("policy")
    record = consent.policy_record(project.root, project.user_state)
    content = consent.policy_content(project.policy)
    if project.policy and not (is_file(record) and read_text(record) == content):
        write_whole(record, content)


def check_image(
    policy: Policy,
    record: ReleaseRecord,
    registry: Registry,
    retry_policy: RetryPolicy,
    max_age: timedelta | None = None,
) -> tuple[SignedStatement, ...]:
    """Return the statements about an image by trusted keys; raise TrustError if they do not meet the policy.

    `max_age` is the age up to which test results count.
    """
    keys = [read_public_key(path) for path in policy.keys]
    digest = Digest(record.digest)
    # Other tools name the repository
    names = (record.image, f"{record.registry}/{record.repository}")
    try:
        bounded_registry = DeadlineRegistry(registry, retry_policy.until)
        remote = ArtifactRepository(bounded_registry, record.repository, retry_policy)
        bundles = remote.contents(digest, bundle.MEDIA_TYPE)
    except (RegistryError, OverdueError) as error:
        answer = error.answer if isinstance(error, RegistryError) else str(error)
        facts = (("image URI", record.image_uri), ("answer", answer))
        raise TrustError(
            f"the signed statements of `{record.image}` could not be read", facts=facts
        ) from error
    statements, refused = [], []
    for manifest, content in bundles.items():
        try:
            statements.append(bundle.verify(content, digest, names, keys))
        except RefusedError as error:
            refused.append(Reason(f"statement {short(manifest)} {error}"))
    if found := problems(policy, record, statements, max_age):
        reasons = [Reason(text) for text, _ in found]
        if len(refused) > _MAX_REFUSED:
            refused[_MAX_REFUSED:] = [Reason(f"{len(refused) - _MAX_REFUSED} more statements are refused")]
        message = f"`{record.image}` does not meet [tool.bakehouse.policy]"
        facts = (("image URI", record.image_uri), ("trusted", ", ".join(key.name for key in keys)))
        raise TrustError(message, reasons=(*reasons, *refused), facts=facts, hint=found[0][1])
    return tuple(statements)


def problems(
    policy: Policy, record: ReleaseRecord, statements: Sequence[SignedStatement], max_age: timedelta | None
) -> list[tuple[str, str]]:
    """Return the requirements of a policy that statements do not meet, each with a hint."""
    return list(_problems(policy, record, statements, max_age))


def _problems(
    policy: Policy, record: ReleaseRecord, statements: Sequence[SignedStatement], max_age: timedelta | None
) -> Iterator[tuple[str, str]]:
    image = record.image
    signed = {
        predicate_type: {
            statement.key for statement in statements if statement.predicate_type == predicate_type
        }
        for predicate_type in (*_TYPES.values(), REBUILD)
    }
    for name, predicate_type in _TYPES.items():
        if name in policy.require and not signed[predicate_type]:
            command = f"bake push {image} --candidate" if record.candidate else f"bake push {image}"
            hint = f"run `{command}` with a trusted `signing_key`; the image is not pushed twice"
            yield f"it has no {_TITLES[name]} that a trusted key signed", hint
    if "tests" in policy.require and (problem := _tests_problem(statements, max_age)):
        yield problem, f"test it, then run `bake promote {image}` with a trusted `signing_key`"
    if "pinned" in policy.require:
        for problem in dict.fromkeys(_pinned_problems(statements)):
            yield problem, "lock all inputs, or remove `pinned` from `require`"
    # A rebuild that the key of the first build signed does not count.
    rebuilds = len(signed[REBUILD] - signed[PROVENANCE])
    if rebuilds < policy.rebuilds:
        count = format_count(policy.rebuilds, "rebuild")
        text = f"it has {rebuilds} of {count} by trusted keys other than that of its provenance"
        yield text, f"run `bake reproduce {image} --sign` with another trusted `signing_key`"


def _pinned_problems(statements: Sequence[SignedStatement]) -> Iterator[str]:
    """Yield the inputs of the signed provenance that nothing pins."""
    provenances = [item.predicate for item in statements if item.predicate_type == PROVENANCE]
    if not provenances:
        yield "whether its inputs are pinned is not known: no trusted key signed its provenance"
    for predicate in provenances:
        try:
            inputs = predicate["buildDefinition"]["internalParameters"][UNPINNED]
            texts = [str(text) for text in inputs] if isinstance(inputs, list) else None
        except (KeyError, TypeError):
            texts = None
        if texts is None:
            yield "whether its inputs are pinned is not known: its provenance does not say it"
        yield from (f"nothing pins its input `{text}`" for text in texts or ())


def _tests_problem(statements: Sequence[SignedStatement], max_age: timedelta | None) -> str:
    """Return why no test results count; empty if some do. The newest results of each key count."""
    now = datetime.now(UTC)
    oldest = datetime.min.replace(tzinfo=UTC)
    results = [_tests(statement) for statement in statements if statement.predicate_type == TESTS]
    newest: dict[PublicKey, _Tests] = {}
    for result in sorted(results, key=lambda tests: (tests.finished or oldest, not tests.passed)):
        if result.finished is None or result.finished <= now + MAX_CLOCK_DIFFERENCE:
            newest[result.key] = result
    for result in newest.values():
        if not result.passed:
            names = ", ".join(f"`{name}`" for name in result.failed)
            return f"`{result.key.name}` signed that tests failed{f': {names}' if names else ''}"
    if not newest:
        has_future = "its signed test results are dated in the future"
        return has_future if results else "it has no test result that a trusted key signed"
    if max_age and not _is_any_recent(newest.values(), now - max_age):
        return f"its signed test results are older than {max_age.days} days, or have no date"
    return ""


def _is_any_recent(results: Collection[_Tests], since: datetime) -> bool:
    return any(result.finished is not None and result.finished >= since for result in results)


def _tests(statement: SignedStatement) -> _Tests:
    predicate = statement.predicate
    failed = predicate.get("failedTests")
    return _Tests(
        passed=predicate.get("result") == "PASSED" and not failed,
        failed=tuple(map(str, failed)) if isinstance(failed, list) else (),
        finished=_finished(predicate.get("configuration")),
        key=statement.key,
    )


def _finished(configuration: Any) -> datetime | None:
    """Return the time at which the tests ended."""
    try:
        [recipe] = configuration
        time = datetime.fromisoformat(recipe["annotations"]["finishedOn"])
    except (ValueError, KeyError, TypeError):
        return None
    return time if time.tzinfo else None
