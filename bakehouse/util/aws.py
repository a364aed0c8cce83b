"""A door to boto3: who we are in AWS, in which account and region, and what AWS answers in our words."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bakehouse.errors import Diagnostic, PublishError, RegistryAuthError
from bakehouse.util.aws_answers import Trouble, no_credentials, refusal

if TYPE_CHECKING:
    import boto3  # type: ignore[import-untyped]

_WHO = "find out who we are in AWS"
_ASSUME = "assume the role "
_SOMEBODY = "the AWS session"
_SESSION_NAME = "bakehouse"
"""What AWS's own log calls us; AWS_ROLE_SESSION_NAME gives another."""


@dataclass(frozen=True, slots=True)
class Access:
    """How AWS is reached; empty is what boto3 finds by itself."""

    profile: str = ""
    role: str = ""
    """The ARN of a role to assume."""
    fips: bool = False
    """Through endpoints with FIPS 140 modules."""
    dual_stack: bool = False
    """Through endpoints with IPv6."""


class Aws:
    """AWS in one region, with one identity."""

    def __init__(self, region: str | None, access: Access | None = None) -> None:
        self._given_region = region
        self.access = access or Access()
        self._asking = threading.RLock()

    @cached_property
    def region(self) -> str:
        if not self._own_session.region_name:
            hint = "set `region` in [tool.bakehouse], or AWS_DEFAULT_REGION"
            raise PublishError(Diagnostic("no AWS region is set", hint=hint))
        return str(self._own_session.region_name)

    @cached_property
    def identity(self) -> dict[str, str]:
        with self.translate_errors(_WHO):
            return dict(self.client("sts").get_caller_identity())

    def principal(self) -> str:
        """Whom AWS sees, as the subject of a sentence."""
        return _subject(self.identity["Arn"])

    def client(self, service: str) -> Any:
        # Sessions of boto3 are not made for threads, and several images may be pushed at once.
        with self._asking, self.translate_errors(f"reach AWS ({service})"):
            return self._session.client(service, region_name=self.region, config=self._config)

    @contextlib.contextmanager
    def translate_errors(self, doing: str) -> Iterator[None]:
        """Turn boto3's exceptions into ours; the words of a refused signature are never repeated."""
        from botocore.exceptions import (  # type: ignore[import-untyped]
            BotoCoreError,
            ClientError,
        )

        try:
            yield
        except (ClientError, BotoCoreError) as error:
            found = refusal(doing, error, lambda: self._denied_principal(doing))
            told = found.diagnostic
            if found.trouble is Trouble.DENIED and doing.startswith(_ASSUME):
                told = replace(told, hint="the role's trust policy has to name it too")
            kept_out = found.trouble in (Trouble.NOT_LET_IN, Trouble.DENIED)
            raise (RegistryAuthError if kept_out else PublishError)(told) from error

    @cached_property
    def _own_session(self) -> "boto3.Session":
        import boto3

        with self.translate_errors("read the AWS configuration"):
            return boto3.Session(region_name=self._given_region, profile_name=self.access.profile or None)

    @cached_property
    def _session(self) -> "boto3.Session":
        """The session that asks: our own, or that of the role."""
        if not self.access.role:
            return self._own_session
        import boto3
        import botocore.session  # type: ignore[import-untyped]
        from botocore.credentials import (  # type: ignore[import-untyped]
            AssumeRoleCredentialFetcher,
            CredentialResolver,
        )

        role = self.access.role
        told = {"RoleSessionName": os.environ.get("AWS_ROLE_SESSION_NAME") or _SESSION_NAME}
        with self.translate_errors(f"read credentials for the role `{role}`"):
            own = self._own_session.get_credentials()
        if own is None:
            raise RegistryAuthError(no_credentials().diagnostic)

        def client_creator(service: str, **arguments: Any) -> Any:
            return self._own_session.client(
                service, region_name=self.region, config=self._config, **arguments
            )

        fetcher = AssumeRoleCredentialFetcher(client_creator, own, role, extra_args=told)
        session = botocore.session.get_session()
        session.register_component("credential_provider", CredentialResolver([_role_provider(fetcher)]))
        with self.translate_errors(f"{_ASSUME}`{role}`"):
            # Now, so that a refusal is told as one, and not as that of the first request.
            session.get_credentials().get_frozen_credentials()
        return boto3.Session(botocore_session=session, region_name=self.region)

    @cached_property
    def _config(self) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]

        # None leaves it to the environment and to ~/.aws.
        return Config(
            use_fips_endpoint=self.access.fips or None, use_dualstack_endpoint=self.access.dual_stack or None
        )

    def _denied_principal(self, doing: str) -> str:
        # Whoever may do nothing at all may still ask who they are.
        if doing == _WHO:
            return _SOMEBODY
        asking = self
        if doing.startswith(_ASSUME):
            asking = Aws(self._given_region, Access(self.access.profile, "", self.access.fips))
        try:
            return asking.principal()
        except PublishError:
            # Such as in a network without an endpoint of STS: what was denied is told all the same.
            return _SOMEBODY


def summarize(error: PublishError) -> str:
    """What AWS refused, on one line."""
    told = error.diagnostics[0]
    return "; ".join((told.message, *(one.text for one in told.reasons), *(fact for _, fact in told.facts)))


def _role_provider(fetcher: Any) -> Any:
    """What gives boto3 a role's credentials, and new ones before they expire: a push may outlast them."""
    from botocore.credentials import (
        CredentialProvider,
        DeferredRefreshableCredentials,
    )

    class RoleProvider(CredentialProvider):  # type: ignore[misc]
        METHOD = "assume-role"

        def load(self) -> Any:
            return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=fetcher.fetch_credentials)

    return RoleProvider()


def _subject(arn: str) -> str:
    kind, _, name = arn.rpartition(":")[2].partition("/")
    if kind == "assumed-role":
        role, _, session = name.partition("/")
        return f"the AWS session `{session}` (role {role})"
    return f"the AWS {kind} `{name}`" if name else f"the AWS account's {kind} user"
