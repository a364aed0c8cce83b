"""Differences between releases, from their records."""

from dataclasses import replace

from bakehouse.ledger.release_changes import Change, changes, neighbours, timeline
from bakehouse.ledger.releases import ReleasedComponent, ReleasedName
from tests.support.numbered_releases import release


def test_components_that_came_went_and_changed_are_listed() -> None:
    before = release(1, parts=(ReleasedComponent("a", "1", ""), ReleasedComponent("b", "1", "cpu")))
    after = release(2, parts=(ReleasedComponent("a", "2", ""), ReleasedComponent("c", "1", "cpu")))

    assert [change.text for change in changes(before, after)] == ["a 1 → 2", "- b 1 (cpu)", "+ c 1 (cpu)"]


def test_versions_are_shown_with_their_variants() -> None:
    first, second = (
        release(number, parts=(ReleasedComponent("a", version, "x"),)) for number, version in enumerate("12")
    )

    assert changes(first, second) == (Change("a", "1 (x)", "2 (x)", "component"),)


def test_provided_versions_and_settings_are_compared() -> None:
    before = release(1, provides=(ReleasedName("cuda", "12.8"),), launchers=("mpirun",))
    after = release(
        2,
        provides=(ReleasedName("cuda", "13.0"),),
        launchers=("mpirun", "torchrun"),
        training_module="a.b:main",
        entry_point="train.py",
        gpu_architecture=">=7.5",
        bytes=before.bytes + 1_000_000,
    )

    assert [(change.kind, change.text) for change in changes(before, after)] == [
        ("provided version", "cuda 12.8 → 13.0"),
        ("GPU architectures", "none → >=7.5"),
        ("training module", "none → a.b:main"),
        ("entry point", "none → train.py"),
        ("launchers", "mpirun → mpirun, torchrun"),
        ("size", "595.0 MB → 596.0 MB"),
    ]


def test_the_build_key_stands_for_what_the_ledger_does_not_record() -> None:
    before, after = release(0xA << 252), release(0xB << 252)

    assert changes(before, after) == (Change("", "a0000000", "b0000000", "build key"),)
    assert changes(before, replace(after, key=before.key)) == ()


def test_a_timeline_has_each_digest_once_by_its_first_release() -> None:
    first, second = release(1, date="2026-11-01"), release(2, date="2026-11-03")
    candidate = replace(second, candidate=True, date="2026-11-02")
    unreleased = replace(release(3), candidate=True)
    again = replace(first, tags=("other",), date="2026-11-04")

    assert timeline([candidate, first, second, again, unreleased]) == (first, second, unreleased)


def test_each_release_is_compared_with_the_one_before() -> None:
    line = [release(1, bytes=1), release(2, bytes=2), release(3, bytes=2)]
    compared = neighbours(line)

    assert [*compared] == [line[1].digest, line[2].digest]
    assert compared[line[1].digest] == changes(line[0], line[1])
