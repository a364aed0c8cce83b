"""Every way in which a registry lets us down, in words."""

from dataclasses import dataclass, replace

import pytest

from bakehouse.errors import Diagnostic, Reason, RegistryAuthError, TagTakenError
from bakehouse.fetch.connection import ConnectionSettings
from bakehouse.fetch.faults import Fault
from bakehouse.fetch.http_client import HttpClient
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import Origin
from bakehouse.registry.registry import Credentials
from bakehouse.util.oci import Digest
from tests.support.built_images import DIGEST, IMAGE, OTHER


@dataclass
class Somewhere:
    """A registry of which only the description is used."""

    host: str = "registry.example.com"
    seen_as: str = "docker's login `ci`"
    disk: tuple[Reason, ...] = ()

    @property
    def client(self) -> HttpClient:
        return HttpClient(ConnectionSettings())

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        return None

    def create_repository(self, repository: str, moving_tag: str) -> None:
        raise AssertionError

    def principal(self) -> str:
        return self.seen_as

    def known_problems(self) -> tuple[Reason, ...]:
        return self.disk

    def pushed(self, repository: str, digest: Digest) -> str:
        return ""


def refusals(registry: Somewhere | None = None) -> PushDiagnostics:
    return PushDiagnostics(
        ReleaseTarget(
            *(IMAGE.name, IMAGE.key, DIGEST, registry or Somewhere(), "bakehouse/mpi-cpu"),
            tag="mpi-cpu-20261120-7c1e44b0",
        )
    )


PLACE = "registry.example.com/bakehouse/mpi-cpu"
AGAIN = "run `bake push mpi-cpu` again; uploaded layers are reused"


def test_a_taken_tag() -> None:
    error = refusals().tag_taken(OTHER, Origin(is_ours=True), "")
    assert isinstance(error, TagTakenError)
    assert error.diagnostics == (
        Diagnostic(
            "tag `mpi-cpu-20261120-7c1e44b0` is taken by a different image",
            reasons=(
                Reason(
                    "both have the build key 7c1e44b0 but different content: the build is not reproducible"
                ),
            ),
            facts=(
                ("in repository", PLACE),
                ("there, manifest", OTHER),
                ("here, configuration", DIGEST),
                ("to use it", f"{PLACE}@{OTHER}"),
            ),
            hint="use the existing image, or push under tomorrow's tag",
        ),
    )


@pytest.mark.parametrize(
    ("pushed", "so"), [(False, "nothing was pushed"), (True, "it was pushed, but no release was recorded")]
)
def test_a_form_that_sagemaker_does_not_take(pushed: bool, so: str) -> None:
    reasons = (Reason("it has no layers"),)
    assert refusals().unfit(reasons, pushed=pushed).diagnostics == (
        Diagnostic(
            "`mpi-cpu` is not a single linux/amd64 Docker schema 2 image with gzip layers",
            reasons=reasons,
            facts=(("digest", DIGEST), ("result", so)),
            hint="run `bake build mpi-cpu` to build it in that format",
        ),
    )


def test_no_answer() -> None:
    error = refusals().unanswered(RegistryError(None, "", "no connection in 30 s"))
    facts = (("answer", "no connection in 30 s"),)
    hint = "check that it runs and is reachable from here, then run `bake push mpi-cpu`"
    assert error.diagnostics == (
        Diagnostic("`registry.example.com` does not answer", facts=facts, hint=hint),
    )


def test_an_image_of_another_tool() -> None:
    cause = "the existing image has no Bakehouse labels, so another tool pushed it"
    assert refusals().tag_taken(OTHER, Origin(), "").diagnostics[0].reasons == (Reason(cause),)


def test_both_sides_of_a_conflict() -> None:
    diagnostics = replace(
        refusals(), revision="8802d51", history=lambda _, digest: f"ledger's of {digest[:9]}"
    )
    origin = Origin(True, "3be01c4", "2026-11-18 09:41", "ci")
    facts = diagnostics.tag_taken(OTHER, origin, "2026-11-18 09:45 UTC").diagnostics[0].facts
    assert facts[1:-1] == (
        ("there, manifest", OTHER),
        ("there, pushed", "2026-11-18 09:45 UTC"),
        ("there, ledger", f"ledger's of {OTHER[:9]}"),
        ("there, revision", "3be01c4"),
        ("there, created", "2026-11-18 09:41"),
        ("there, by", "ci"),
        ("here, configuration", DIGEST),
        ("here, revision", "8802d51"),
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault.NAME, "cannot resolve `registry.example.com`"),
        (Fault.CERTIFICATE, "`registry.example.com` is not trusted"),
        (Fault.NOT_TLS, "`registry.example.com` does not use TLS"),
        (Fault.PROXY_LOGIN, "`registry.example.com` cannot be reached through a proxy"),
    ],
)
def test_a_registry_that_is_not_reached(fault: Fault, message: str) -> None:
    error = refusals().unanswered(RegistryError(None, "", "because", fault=fault))
    assert error.diagnostics[0].message == message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RegistryError(403, "DENIED", "denied: quota exceeded"), "`{place}` is out of space (quota or disk)"),
        (
            RegistryError(404, "NAME_UNKNOWN", "no such name"),
            "there is no repository `bakehouse/mpi-cpu` in `{host}`",
        ),
        (RegistryError(400, "DIGEST_INVALID", "other bytes"), "`{place}` received corrupted data"),
        (RegistryError(None, "", "refused"), "`{host}` does not answer"),
    ],
)
def test_failures_of_an_upload_are_explained(error: RegistryError, message: str) -> None:
    failure = refusals().broken_off(error)
    assert failure.diagnostics[0].message == message.format(host="registry.example.com", place=PLACE)
    assert failure.diagnostics[0].hint


def test_an_answer_that_is_a_failure() -> None:
    error = refusals().unanswered(RegistryError(500, "UNKNOWN", "unknown error"))
    facts = (("answer", "HTTP 500: unknown error"),)
    assert error.diagnostics == (Diagnostic("`registry.example.com` failed", facts=facts),)


def test_wrong_credentials() -> None:
    error = refusals().unanswered(RegistryError(401, "UNAUTHORIZED", "authentication required"))
    assert isinstance(error, RegistryAuthError)
    assert error.diagnostics == (
        Diagnostic(
            "`registry.example.com` does not accept the credentials",
            reasons=(Reason("it answered docker's login `ci`: authentication required"),),
            hint="log in, then run `bake push mpi-cpu`; the built image is reused",
        ),
    )


def test_without_read_permission_nothing_is_reported_about_the_push() -> None:
    error = refusals().unanswered(RegistryError(403, "DENIED", "requested access is denied"))
    assert isinstance(error, RegistryAuthError)
    assert error.diagnostics == (
        Diagnostic(
            f"not allowed to read from `{PLACE}`",
            reasons=(Reason("docker's login `ci` is valid but not authorized: requested access is denied"),),
            hint=(
                "use credentials with read permission (`ecr:BatchGetImage` and "
                "`ecr:GetDownloadUrlForLayer` on Amazon ECR), then run `bake push mpi-cpu`"
            ),
        ),
    )


def test_a_missing_permission_to_tag_is_reported() -> None:
    error = replace(refusals(), command="promote").untagged(RegistryError(403, "DENIED", "no"))
    assert isinstance(error, RegistryAuthError)
    assert error.diagnostics == (
        Diagnostic(
            f"not allowed to set a tag in `{PLACE}`",
            reasons=(Reason("docker's login `ci` is valid but not authorized: no"),),
            hint="use credentials with push permission, then run `bake promote mpi-cpu`",
        ),
    )


def test_no_credentials() -> None:
    error = refusals(Somewhere(seen_as="")).unanswered(RegistryError(401, "", "authentication required"))
    assert error.diagnostics[0].reasons == (Reason("not logged in: authentication required"),)


def test_missing_rights_are_another_sentence_than_wrong_credentials() -> None:
    error = refusals().broken_off(RegistryError(403, "DENIED", "requested access is denied"))
    assert isinstance(error, RegistryAuthError)
    assert error.diagnostics == (
        Diagnostic(
            f"not allowed to push to `{PLACE}`",
            reasons=(
                Reason("docker's login `ci` is valid but not authorized: requested access is denied"),
                Reason("no tag was set; the image is built as sha256:4f1c09d2a7be"),
            ),
            hint="use credentials with push permission, then run `bake push mpi-cpu`; "
            "the built image is reused",
        ),
    )


@pytest.mark.parametrize(
    ("error", "diagnostic"),
    [
        (
            RegistryError(None, "", "silent for 30 s", fault=Fault.SILENT),
            Diagnostic(f"the push to `{PLACE}` stalled and was stopped", hint=AGAIN),
        ),
        (
            RegistryError(500, "UNKNOWN", "unknown error"),
            Diagnostic(
                f"the push to `{PLACE}` failed",
                facts=(("registry", "HTTP 500: unknown error"),),
                hint=f"check the registry's log and disk, then {AGAIN}",
            ),
        ),
        (
            RegistryError(400, "TAG_INVALID", "the tag is immutable"),
            Diagnostic(
                f"the push to `{PLACE}` failed",
                facts=(("registry", "HTTP 400: the tag is immutable"),),
                hint="check the registry's log, then run `bake push mpi-cpu`",
            ),
        ),
        (
            RegistryError(429, "TOOMANYREQUESTS", "Rate limit exceeded", retry_after=60.0),
            Diagnostic(
                f"the push to `{PLACE}` failed",
                facts=(("registry", "HTTP 429: Rate limit exceeded"), ("retry after", "60 s")),
                hint=f"check the registry's log and disk, then {AGAIN}",
            ),
        ),
    ],
)
def test_a_push_that_failed(error: RegistryError, diagnostic: Diagnostic) -> None:
    assert refusals().broken_off(error).diagnostics == (diagnostic,)


@pytest.mark.parametrize("before", ["", "registry.example.com failed: busy"])
def test_a_push_that_did_not_end_in_time(before: str) -> None:
    assert refusals().overdue(before).diagnostics == (
        Diagnostic(
            f"the push to `{PLACE}` was stopped: the deadline passed",
            facts=(("previous attempt", before),) if before else (),
            hint=AGAIN,
        ),
    )


def test_a_full_disk_on_this_side_is_a_reason() -> None:
    full = Somewhere(disk=(Reason("the disk that holds `build/registry` has 0 bytes left"),))
    error = refusals(full).broken_off(RegistryError(500, "UNKNOWN", "unknown error"))
    assert error.diagnostics[0].reasons == full.disk


def test_a_registry_that_has_nothing_after_all() -> None:
    assert refusals().tag_missing().diagnostics == (
        Diagnostic(
            f"`{PLACE}` accepted the push, but has no tag `mpi-cpu-20261120-7c1e44b0`",
            hint="run `bake push mpi-cpu` again",
        ),
    )


def test_a_candidate_that_is_gone() -> None:
    assert refusals().candidate_gone().diagnostics == (
        Diagnostic(
            f"`{PLACE}` no longer has the candidate sha256:4f1c09d2a7be",
            hint="run `bake push --candidate mpi-cpu` again",
        ),
    )


def test_the_command_to_repeat_is_the_one_that_failed() -> None:
    assert refusals().retry == "`bake push mpi-cpu`"
    assert replace(refusals(), command="promote").retry == "`bake promote mpi-cpu`"
