"""One image in several registries, without any of them."""

import pytest

from bakehouse.errors import BakehouseError, EngineError
from bakehouse.publish.regions import for_each_region
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.registry import NamedRegistry, Registry
from bakehouse.util.oci import Digest
from tests.support.errors import raised

DIGEST = Digest(f"sha256:{1:064x}")
FIRST, SECOND = (NamedRegistry(f"{name}.example.com", lambda _: None) for name in ("one", "two"))


def test_successful_pushes_are_reported_even_if_one_registry_fails() -> None:
    def publish(target: Registry, first: PublishedImage | None) -> PublishedImage:
        if first:
            raise EngineError("no container engine answers")
        return PublishedImage("mpi-cpu", target.host, "team/mpi-cpu", ("mpi-cpu-1",), DIGEST)

    spread = for_each_region([FIRST, SECOND], publish)
    assert spread.published.registry == FIRST.host
    with pytest.raises(EngineError, match="no container engine answers"):
        spread.require_all()


def test_what_no_registry_took_is_raised_as_it_was() -> None:
    def publish(target: Registry, first: PublishedImage | None) -> PublishedImage:
        raise EngineError("no container engine answers")

    assert type(raised(BakehouseError, for_each_region, [FIRST], publish)) is EngineError


def test_an_interrupt_between_two_registries_keeps_what_the_first_one_took() -> None:
    def publish(target: Registry, first: PublishedImage | None) -> PublishedImage:
        if first:
            raise KeyboardInterrupt
        return PublishedImage("mpi-cpu", target.host, "team/mpi-cpu", ("mpi-cpu-1",), DIGEST)

    spread = for_each_region([FIRST, SECOND, FIRST], publish)
    assert spread.published.registry == FIRST.host
    with pytest.raises(KeyboardInterrupt):
        spread.require_all()


def test_an_interrupt_before_any_registry_took_it_is_one() -> None:
    def publish(target: Registry, first: PublishedImage | None) -> PublishedImage:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each_region([FIRST], publish)
