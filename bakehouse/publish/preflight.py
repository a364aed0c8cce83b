"""Checks before a build: the registries answer, accept the login, and let it push to each repository."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Problems, PublishError, Reason, RegistryAuthError
from bakehouse.fetch.faults import unreachable
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.registry.registry import Registry

_RETRY_POLICY = RetryPolicy(attempts=2, timeout=15.0)
_MAX_CONCURRENT_CHECKS = 8


def check_access(
    project: ProjectSettings, selection: str, images: Sequence[str], *, create: bool = False
) -> None:
    """Raise an error if a registry that `--registry` selects would reject a push of one of the images.

    Each repository gets an upload that is cancelled at once. `create` creates missing ones in Amazon ECR.
    """
    prefix = destination.prefix(project, selection)
    problems, kind = Problems(), PublishError
    for registry in destination.registries(project, selection, create=create):
        if isinstance(registry, EmbeddedRegistry):
            registry.check_port()
            continue
        # Log in once, not in each thread.
        check_login(registry)
        with ThreadPoolExecutor(_MAX_CONCURRENT_CHECKS) as threads:
            errors = threads.map(partial(_repository_error, registry, prefix), images)
            for error in filter(None, errors):
                kind = type(error)
                problems.extend(error.diagnostics)
    problems.raise_as(kind)


def check_login(registry: Registry) -> str:
    """Return how a registry answers, for display. Raises PublishError if it rejects the login."""
    if isinstance(registry, EmbeddedRegistry):
        return f"{registry.host}, {'running' if registry.check_port() else 'not started'}"
    try:
        Repository(registry, "bakehouse", _RETRY_POLICY).ping()
    except RegistryError as error:
        raise _failure(registry, registry.host, error) from error
    principal = registry.principal()
    return f"{registry.host} accepts {principal}" if principal else f"{registry.host} answers without a login"


def _repository_error(registry: Registry, prefix: str, image: str) -> PublishError | None:
    try:
        _check_repository(registry, f"{prefix}/{image}", image)
    except PublishError as error:
        return error
    return None


def _check_repository(registry: Registry, repository: str, image: str) -> None:
    remote = Repository(registry, repository, _RETRY_POLICY)
    refusal = remote.refusal()
    if refusal and refusal.status == 404 and isinstance(registry, EcrRegistry):
        registry.create_repository(repository, image)
        refusal = remote.refusal()
    if refusal:
        raise _failure(registry, f"{registry.host}/{repository}", refusal)


def _failure(registry: Registry, place: str, error: RegistryError) -> PublishError:
    """Return the error before a build for an error response of a registry."""
    host, principal = registry.host, registry.principal()
    if error.status == 401:
        reason = f"it answered {principal}: {error.text}" if principal else f"not logged in: {error.text}"
        message = f"`{host}` does not accept the credentials"
        hint = f"run `docker login {host}`"
        if isinstance(registry, EcrRegistry):
            hint = "run `aws sts get-caller-identity` to see which credentials are used"
        return RegistryAuthError(message, reasons=(Reason(reason),), hint=hint)
    if error.status == 403:
        subject = f"{principal} is valid but not authorized" if principal else "not logged in"
        reasons = (Reason(f"{subject}: {error.text}"), Reason("nothing was built"))
        message = f"not allowed to push to `{place}`"
        return RegistryAuthError(message, reasons=reasons, hint="use credentials with push permission")
    if error.status is None:
        return PublishError.of(unreachable(host, error.fault, error.text))
    if error.status < 400:
        return PublishError(f"`{host}` is not a registry", hint="check the host and its port")
    facts = (("answer", error.answer),)
    return PublishError(f"`{place}` does not accept uploads", facts=facts)
