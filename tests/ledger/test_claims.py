"""Claims on a release, on this machine and in S3."""

import contextlib
import errno
import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from bakehouse.errors import BakehouseError, BuildError, Diagnostic, Location, Reason
from bakehouse.ledger import claims as claiming
from bakehouse.ledger.claims import LEASE, Attempt, Claim, Claims, _FileClaims, _SharedClaims
from bakehouse.ledger.s3_ledger import S3Ledger, StoredObject

FAILED = BuildError.of(
    Diagnostic(
        "the build failed",
        Location(Path("recipes/images/own.yaml"), 3, 7, text="components:"),
        reasons=(Reason("pip ended with 1"),),
        facts=(("log", "build/log"),),
        tail=("no space",),
        hint="read the log",
    )
)


@dataclass
class Team:
    """The objects of a ledger in S3, and their ages."""

    objects: dict[str, StoredObject] = field(default_factory=dict)

    def read_object(self, name: str) -> StoredObject | None:
        return self.objects.get(name)

    def replace_object(self, name: str, content: bytes, version: str) -> str:
        stored = self.objects.get(name)
        if (stored.version if stored else "") != version:
            return ""
        new = hashlib.sha256(content + version.encode()).hexdigest()
        self.objects[name] = StoredObject(content, new, timedelta())
        return new

    def age(self, time: timedelta) -> None:
        self.objects = {
            name: StoredObject(stored.content, stored.version, time) for name, stored in self.objects.items()
        }


@pytest.fixture
def team() -> Team:
    return Team()


@pytest.fixture(params=["file", "S3"])
def on_release(request: pytest.FixtureRequest, tmp_path: Path, team: Team) -> Claims:
    if request.param == "file":
        return _FileClaims(tmp_path / "locks/release.claim")
    return _SharedClaims(cast(S3Ledger, team), "own/key.claim")


def taken(claims: Claims, awaited: int | None = None) -> Claim:
    claim = claims.take(awaited)
    assert not isinstance(claim, Attempt)
    return claim


def fail(claim: Claim) -> None:
    with contextlib.suppress(BuildError), claim:
        raise FAILED


def test_one_of_two_callers_holds_a_claim(on_release: Claims) -> None:
    with taken(on_release):
        assert on_release.take() == Attempt(1, is_held=True)

    with taken(on_release):
        assert on_release.take() == Attempt(2, is_held=True)


def test_a_caller_that_waited_gets_the_error_with_all_its_parts(on_release: Claims) -> None:
    claim = taken(on_release)
    attempt = on_release.take()
    assert isinstance(attempt, Attempt)
    fail(claim)

    for _ in range(2):
        with pytest.raises(BuildError) as caught:
            on_release.take(attempt.first_to_end)
        assert caught.value.diagnostics == FAILED.diagnostics


def test_a_caller_gets_the_error_of_an_attempt_after_the_one_it_saw(on_release: Claims) -> None:
    with taken(on_release):
        attempt = on_release.take()
    assert isinstance(attempt, Attempt)
    fail(taken(on_release))

    with pytest.raises(BuildError, match="the build failed"):
        on_release.take(attempt.first_to_end)


def test_a_later_caller_tries_again(on_release: Claims) -> None:
    fail(taken(on_release))

    with taken(on_release):
        assert on_release.take() == Attempt(2, is_held=True)


def test_a_caller_that_saw_a_failed_attempt_end_tries_again() -> None:
    failed = Attempt(3, is_held=True).ended(FAILED)

    failed.raise_error(failed.first_to_end)
    with pytest.raises(BuildError):
        failed.raise_error(Attempt(3, is_held=True).first_to_end)


def test_another_exception_is_no_error_of_the_release(on_release: Claims) -> None:
    claim = taken(on_release)
    with contextlib.suppress(KeyboardInterrupt), claim:
        raise KeyboardInterrupt

    with taken(on_release, awaited=1):
        pass


@pytest.mark.parametrize("kind", ["NoSuchError", "Location", ""])
def test_an_error_of_an_unknown_class_is_raised(kind: str) -> None:
    attempt = Attempt(1, is_held=False, kind=kind, mistakes=FAILED.diagnostics)

    with pytest.raises(BakehouseError, match="the build failed") as caught:
        attempt.raise_error(1)
    assert type(caught.value) is BakehouseError


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"number": "1"}', b"\xff"])
def test_a_claim_that_was_not_written_whole_is_free(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "release.claim"
    path.write_bytes(content)

    with taken(_FileClaims(path), awaited=0):
        pass


def test_a_claim_in_s3_ends_with_its_lease(team: Team) -> None:
    claims = _SharedClaims(cast(S3Ledger, team), "own/key.claim")
    lost = taken(claims)
    team.age(LEASE - timedelta(seconds=1))
    assert claims.take() == Attempt(1, is_held=True)
    team.age(LEASE)

    with lost, taken(claims):
        pass

    # The lost claim changed nothing
    assert Attempt.parse(team.objects["own/key.claim"].content) == Attempt(2, is_held=False)


def test_of_two_callers_that_saw_the_same_claim_one_gets_it(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = _SharedClaims(cast(S3Ledger, team), "own/key.claim")
    with taken(claims):
        pass
    seen = team.read_object("own/key.claim")
    with taken(claims):
        monkeypatch.setattr(team, "read_object", lambda name: seen)

        assert claims.take() == Attempt(2, is_held=True)


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "RENEWAL_SECONDS", 0.001)


def test_the_holder_renews_its_claim_in_s3(
    team: Team, renewals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Event()
    replace = team.replace_object

    def count(name: str, content: bytes, version: str) -> str:
        if version:
            renewed.set()
        return replace(name, content, version)

    monkeypatch.setattr(team, "replace_object", count)
    with taken(_SharedClaims(cast(S3Ledger, team), "own/key.claim")):
        assert renewed.wait(60)


def test_an_error_is_raised_as_it_is_where_the_claim_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = _FileClaims(tmp_path / "release.claim")
    claim = taken(claims)

    def write(handle: int, content: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, "pwrite", write)
        fail(claim)
    with taken(claims, awaited=1):
        pass


def test_a_claim_of_an_older_version_is_read() -> None:
    old = {"number": 3, "is_held": True, "kind": "", "mistakes": []}

    assert Attempt.parse(json.dumps(old).encode()) == Attempt(3, is_held=True)


def test_a_write_to_s3_whose_response_was_lost_is_one_s_own(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 refuses its repetition."""
    claims, replace = _SharedClaims(cast(S3Ledger, team), "own/key.claim"), team.replace_object

    def lose(name: str, content: bytes, version: str) -> str:
        replace(name, content, version)
        return ""

    monkeypatch.setattr(team, "replace_object", lose)
    with taken(claims):
        assert claims.take() == Attempt(1, is_held=True)

    assert Attempt.parse(team.objects["own/key.claim"].content) == Attempt(1, is_held=False)


def test_a_claim_whose_renewal_was_refused_once_is_renewed_and_ended(
    team: Team, renewals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, replace = _SharedClaims(cast(S3Ledger, team), "own/key.claim"), team.replace_object
    refused, renewed = threading.Event(), threading.Event()

    def conflict(name: str, content: bytes, version: str) -> str:
        if version and not refused.is_set():
            refused.set()
            return ""
        if version:
            renewed.set()
        return replace(name, content, version)

    monkeypatch.setattr(team, "replace_object", conflict)
    with taken(claims):
        assert renewed.wait(60)

    assert Attempt.parse(team.objects["own/key.claim"].content) == Attempt(1, is_held=False)


def test_the_end_of_a_claim_is_written_after_a_renewal_without_a_response(team: Team) -> None:
    claims = _SharedClaims(cast(S3Ledger, team), "own/key.claim")
    with taken(claims):
        # S3 wrote the renewal, and its new version is not known
        stored = team.objects["own/key.claim"]
        assert team.replace_object("own/key.claim", stored.content, stored.version)

    assert Attempt.parse(team.objects["own/key.claim"].content) == Attempt(1, is_held=False)
