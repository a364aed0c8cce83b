import json
import subprocess
import sys
from dataclasses import MISSING, fields, replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.cli import tables
from bakehouse.errors import RecipeError
from bakehouse.ledger.release_changes import timeline
from bakehouse.ledger.releases import (
    LedgerEntry,
    ReleasedCheck,
    ReleasedComponent,
    ReleasedRollback,
    ReleaseRecord,
    add_entry,
    append,
    by_release,
    clock_warning,
    load,
    newest_first,
    text_of,
)
from bakehouse.publish.ecr_scan import EcrScan
from tests.support.built_images import DIGEST, OTHER
from tests.support.errors import raised, refusal
from tests.support.release_records import a_record

OLD = """\
{
  "format": 1,
  "releases": [
    {
      "artifacts": [],
      "bytes": 595000000,
      "candidate": false,
      "checks": [
        {
          "name": "check_1",
          "outcome": "passed"
        },
        {
          "name": "check_2",
          "outcome": "not tested"
        }
      ],
      "config": "",
      "date": "2026-11-20",
      "digest": "sha256:4f1c09d2a7be0000000000000000000000000000000000000000000000000000",
      "entry_point": "",
      "findings": [],
      "gpu": false,
      "gpu_architecture": "",
      "image": "mpi-cpu",
      "image_uri": "127.0.0.1:5050/bakehouse/mpi-cpu@sha256:4f1c09d2a7be0000000000000000000000000000000000000000000000000000",
      "key": "7c1e44b07c1e44b07c1e44b07c1e44b07c1e44b07c1e44b07c1e44b07c1e44b0",
      "launchers": [
        "mpirun"
      ],
      "media_type": "application/vnd.docker.distribution.manifest.v2+json",
      "neuron_architecture": "",
      "not_scanned": "",
      "parts": [
        {
          "component": "open-mpi",
          "variant": "py311",
          "version": "4.1.8"
        }
      ],
      "platform": "linux/amd64",
      "provides": [],
      "regions": [],
      "registry": "127.0.0.1:5050",
      "repository": "bakehouse/mpi-cpu",
      "revision": "",
      "scanned": "",
      "scans": [],
      "tags": [
        "mpi-cpu-20261120-7c1e44b0"
      ],
      "tested": true,
      "tested_on_gpus": null,
      "training_module": "",
      "transport": "mpi",
      "uncommitted": []
    }
  ]
}
"""  # noqa: E501
"""A ledger of format 1."""

VALUES = json.loads(OLD)["releases"][0] | {"rollback": None, "time": "", "unpinned": []}
LEDGER = f'{{"format": 2, "releases": [\n{json.dumps(VALUES, sort_keys=True)},\nnull]}}\n'


def test_a_ledger_as_it_is_committed() -> None:
    assert text_of([a_record()]) == LEDGER


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_scan_is_recorded_where_one_was_asked_for(is_asked: bool) -> None:
    before = replace(a_record(), scanned="2026-11-20T12:30:00Z")
    scan = EcrScan(missing_reason="no rights") if is_asked else EcrScan()
    assert scan.recorded(before).not_scanned == ("no rights" if is_asked else "")
    assert scan.recorded(before).scanned == ("" if is_asked else before.scanned)


def test_the_version_of_a_component() -> None:
    assert a_record().version_of("open-mpi") == "4.1.8"
    assert a_record().version_of("pytorch") == ""


few = settings(max_examples=30)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
digests = st.integers(0, 3).map(lambda number: f"sha256:{number:064x}")


@st.composite
def records(draw: st.DrawFn) -> ReleaseRecord:
    digest, registry = draw(digests), draw(st.sampled_from(["127.0.0.1:5050", "registry.example.com"]))
    return replace(
        a_record(),
        digest=digest,
        registry=registry,
        image_uri=f"{registry}/bakehouse/mpi-cpu@{digest}",
        tags=tuple(draw(st.lists(texts, min_size=1, max_size=2, unique=True))),
        date=draw(texts),
        tested=draw(st.booleans()),
        checks=tuple(draw(st.lists(st.builds(ReleasedCheck, texts, texts), max_size=2))),
        parts=tuple(draw(st.lists(st.builds(ReleasedComponent, texts, texts, texts), max_size=2))),
        bytes=draw(st.integers(0, 2**40)),
        candidate=draw(st.booleans()),
    )


def with_record(records: tuple[ReleaseRecord, ...], new: ReleaseRecord) -> tuple[ReleaseRecord, ...]:
    entries = add_entry(tuple(map(LedgerEntry.of, records)), LedgerEntry.of(new))
    return tuple(entry.record for entry in entries)


def ledger_of(added: list[ReleaseRecord]) -> tuple[ReleaseRecord, ...]:
    ledger: tuple[ReleaseRecord, ...] = ()
    for record in added:
        ledger = with_record(ledger, record)
    return ledger


@few
@given(st.lists(records(), max_size=6), records())
def test_a_ledger_is_only_added_to(added: list[ReleaseRecord], new: ReleaseRecord) -> None:
    before = ledger_of(added)
    assert with_record(before, new)[: len(before)] == before


@few
@given(st.lists(records(), max_size=6), records())
def test_publishing_again_on_another_day_changes_nothing(
    added: list[ReleaseRecord], again: ReleaseRecord
) -> None:
    ledger = ledger_of([*added, again])
    assert with_record(ledger, replace(again, date="2027-01-01", revision="abc")) == ledger


@few
@given(st.lists(records(), max_size=6))
def test_what_became_known_later_has_a_record_of_its_own(added: list[ReleaseRecord]) -> None:
    records = {replace(record, date="", revision="") for record in added}
    assert {replace(record, date="", revision="") for record in ledger_of(added)} == records


@few
@given(st.lists(records(), max_size=4))
def test_what_is_written_is_read(added: list[ReleaseRecord]) -> None:
    ledger = ledger_of(added)
    assert _parsed(text_of(ledger)) == ledger


def _parsed(text: str) -> tuple[ReleaseRecord, ...]:
    import tempfile

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        file.write(text)
        file.flush()
        return load(Path(file.name))


@few
@given(st.lists(records(), max_size=4))
def test_the_newest_are_read_first_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, added: list[ReleaseRecord]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "releases.json"
    ledger = ledger_of(added)
    path.write_text(text_of(ledger), encoding="utf-8")
    assert [*newest_first(path)] == [*reversed(by_release(ledger))]
    path.write_text(json.dumps(json.loads(text_of(ledger))), encoding="utf-8")
    assert [*newest_first(path)] == [*reversed(by_release(ledger))]


def test_what_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(text_of([a_record()] * 2).replace('"tested"', '"tasted"', 1))
    assert next(newest_first(path)) == a_record()
    with pytest.raises(RecipeError, match=r"object missing required field `tested` at `releases\[0\]`"):
        list(newest_first(path))


def test_records_of_the_other_kind_are_skipped_before_validation(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(text_of([replace(a_record(), gpu=True), replace(a_record(), gpu=False)]))
    assert [record.gpu for record in newest_first(path, gpu=True)] == [True]
    assert [record.gpu for record in newest_first(path, gpu=False)] == [False]
    path.write_text(path.read_text().replace('"gpu": false', '"gpu": 0'))
    with pytest.raises(RecipeError, match=r"expected `bool`, got `int` at `releases\[1\].gpu`"):
        list(newest_first(path, gpu=True))


def test_a_ledger_of_an_older_version_is_read(tmp_path: Path) -> None:
    document = json.loads(OLD)
    for name in ("candidate", "config", "provides", "gpu_architecture", "revision", "artifacts"):
        del document["releases"][0][name]
    (tmp_path / "releases.json").write_text(json.dumps(document))
    assert load(tmp_path / "releases.json") == (replace(a_record(), unpinned=None),)


def newer(**values: object) -> str:
    """Return a ledger that a newer Bakehouse wrote, with fields that this one does not know."""
    document = json.loads(LEDGER)
    document["releases"][0] |= {"rating": {"stars": [5]}, **values}
    document["releases"][0]["parts"][0]["license"] = "BSD-3-Clause"
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def test_a_ledger_of_a_newer_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(newer())
    assert load(path) == (a_record(),)
    assert [*newest_first(path)] == [a_record()]


def test_fields_of_a_newer_version_stay_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(newer())
    append(path, a_record(), tmp_path)
    assert path.read_text() == newer()

    candidate = replace(a_record(), candidate=True)
    assert append(path, candidate, tmp_path) == (a_record(), candidate)
    [old, _], after = json.loads(newer())["releases"], json.loads(path.read_text())["releases"]
    assert after == [old, *json.loads(text_of([candidate]))["releases"]]


def test_a_ledger_of_a_newer_format_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text('{"format": 3, "releases": []}')
    [diagnostic] = raised(RecipeError, append, path, a_record(), tmp_path).diagnostics
    assert diagnostic.message == "the ledger of releases has format 3; this Bakehouse reads format 2"
    assert diagnostic.hint == "update Bakehouse; nothing was written to the ledger"
    assert str(diagnostic.location).endswith("releases.json:1:1")
    assert path.read_text() == '{"format": 3, "releases": []}'


def test_defaults_are_empty() -> None:
    """Fields of a newer version count as defaults while they are empty."""
    defaults = {field.name: field.default for field in fields(ReleaseRecord) if field.default is not MISSING}
    assert {name for name, default in defaults.items() if default} == {"platform"}


def test_a_ledger_of_format_1_gets_lines_with_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(OLD)
    append(path, a_record(), tmp_path)
    assert path.read_text() == OLD
    candidate = replace(a_record(), candidate=True)
    append(path, candidate, tmp_path)
    assert path.read_text().count("\n") == 4
    assert load(path) == (replace(a_record(), unpinned=None), candidate)


GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")


def released_by_two(directory: Path, base: str = "") -> Path:
    """Release an image on two branches, and merge these; return the ledger."""
    path = directory / "releases.json"

    def git(*words: str) -> None:
        subprocess.run([*GIT, *words], cwd=directory, check=words[0] != "merge", capture_output=True)

    git("init")
    (directory / "README").touch()
    if base:
        path.write_text(base)
    git("add", ".")
    git("commit", "-m", "base")
    for branch, day in (("ours", "2026-11-22"), ("theirs", "2026-11-21")):
        git("checkout", "-b", branch, "main")
        append(path, replace(a_record(), date=day, revision=branch, tags=(branch,)), directory / ".git")
        git("add", ".")
        git("commit", "-m", branch)
    git("checkout", "ours")
    git("merge", "theirs")
    return path


@pytest.mark.parametrize("base", ["", LEDGER], ids=["first release", "later release"])
def test_a_merge_that_keeps_the_lines_of_both_sides_has_all_records(tmp_path: Path, base: str) -> None:
    path = released_by_two(tmp_path, base)
    assert refusal(RecipeError, load, path) == (
        "error: the ledger of releases has a merge conflict\n"
        f"  --> {path}:{3 if base else 2}:1\n\n"
        "hint: keep the lines of both sides: remove only the lines that begin with `<<<<<<<`, `|||||||`, "
        "`=======` and `>>>>>>>`\n"
    )
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line[:7] not in ("<<<<<<<", "=======", ">>>>>>>")))
    assert [record.revision for record in load(path)] == [*([""] if base else []), "ours", "theirs"]


def test_a_conflict_of_format_1_keeps_one_side(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    path.write_text(OLD.replace('      "gpu": false,', "<<<<<<< HEAD\n=======\n>>>>>>> other"))
    [diagnostic] = raised(RecipeError, load, path).diagnostics
    assert diagnostic.message == "the ledger of releases has a merge conflict"
    assert diagnostic.hint == (
        f"run `git checkout --ours -- {path}`, then push the images of the other branch again"
    )


def published(digit: int, day: str, rollback: ReleasedRollback | None = None) -> ReleaseRecord:
    """Return a release whose digest has one digit."""
    digest = f"sha256:{digit:064x}"
    uri = f"127.0.0.1:5050/bakehouse/mpi-cpu@{digest}"
    return replace(a_record(), digest=digest, image_uri=uri, date=day, rollback=rollback)


def rolled_back(replaced: ReleaseRecord) -> ReleasedRollback:
    return ReleasedRollback("2026-11-22T10:00:00Z", replaced.digest)


def test_a_roll_back_makes_an_older_release_the_latest(tmp_path: Path) -> None:
    old, new = published(1, "2026-11-21"), published(2, "2026-11-22")
    back = replace(old, date="2026-11-22", rollback=rolled_back(new))
    assert by_release([old, new, back])[-1] == back
    assert by_release([old, new, back, published(3, "2026-11-22")])[-1].digest == published(3, "").digest
    path = tmp_path / "releases.json"
    path.write_text(text_of([old, new, back]))
    assert next(newest_first(path)) == back
    assert [record.digest for record in timeline([old, new, back])] == [old.digest, new.digest]


def test_a_release_of_the_future_can_be_rolled_back() -> None:
    old, future = published(1, "2026-11-21"), published(2, "2099-01-01")
    back = replace(old, date="2026-11-22", rollback=rolled_back(future))
    assert by_release([old, future])[-1] == future
    assert by_release([old, future, back])[-1] == back


def test_copies_of_a_roll_back_do_not_precede_a_release_of_the_same_day(tmp_path: Path) -> None:
    old, new = published(1, "2026-11-21"), published(2, "2026-11-22")
    back = replace(old, date="2026-11-22", rollback=rolled_back(new))
    fixed = published(3, "2026-11-22")
    scanned, copy = replace(back, scanned="2026-11-22T12:30:00Z"), replace(back, registry="ecr.example")
    ledger = [old, new, back, fixed, scanned, copy]
    assert by_release(ledger) == (new, old, back, scanned, copy, fixed)
    path = tmp_path / "releases.json"
    path.write_text(text_of(ledger))
    assert next(newest_first(path)) == fixed


def test_a_second_roll_back_to_a_release_is_recorded() -> None:
    old, new = published(1, "2026-11-21"), published(2, "2026-11-22")
    back = replace(old, rollback=rolled_back(new))
    forward = replace(new, rollback=ReleasedRollback("2026-11-22T11:00:00Z", old.digest))
    again = replace(back, rollback=ReleasedRollback("2026-11-22T12:00:00Z", new.digest))
    ledger: tuple[ReleaseRecord, ...] = ()
    for record in (old, new, back, forward, again):
        ledger = with_record(ledger, record)
    assert ledger == (old, new, back, forward, again)
    assert by_release(ledger)[-1] == again


def test_a_release_of_the_future_is_warned_about() -> None:
    assert clock_warning(published(1, "2026-11-20")) == ""
    assert clock_warning(published(1, "2999-01-01")) == (
        "warning: mpi-cpu: the release mpi-cpu-20261120-7c1e44b0 is dated 2999-01-01, in the future; "
        "check the clocks of this machine and of the one that released it"
    )


def test_merged_releases_are_in_the_order_of_their_days() -> None:
    ours, theirs = published(1, "2026-11-22"), published(2, "2026-11-21")
    assert by_release([ours, theirs]) == (theirs, ours)


def test_the_first_day_of_a_release_counts_in_whatever_order_lines_are_merged(tmp_path: Path) -> None:
    old, new = published(1, "2026-11-20"), published(2, "2026-11-21")
    again = replace(old, date="2026-11-22", scanned="2026-11-22T12:30:00Z")
    for merged in permutations([old, new, again]):
        assert by_release(merged)[-1] == new
        path = tmp_path / "releases.json"
        path.write_text(text_of(merged))
        assert next(newest_first(path)) == new


def test_merged_roll_backs_are_in_the_order_of_their_times() -> None:
    first, second, third = (published(number, f"2026-11-2{number}") for number in (1, 2, 3))
    back = replace(second, date="2026-11-23", rollback=rolled_back(third))
    rollback = ReleasedRollback("2026-11-23T11:00:00Z", third.digest)
    further = replace(first, date="2026-11-23", rollback=rollback)
    for merged in permutations([first, second, third, back, further]):
        assert by_release(merged)[-1].digest == first.digest


def test_where_nothing_was_released_there_is_nothing(tmp_path: Path) -> None:
    assert load(tmp_path / "releases.json") == ()


def test_a_first_release_makes_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "mpi-cpu" / "releases.json"
    assert append(path, a_record(), tmp_path / "locks") == (a_record(),)
    assert path.read_text() == LEDGER


def test_nothing_new_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "releases.json"
    append(path, a_record(), tmp_path / "locks")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    append(path, a_record(), tmp_path / "locks")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


WRITE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from bakehouse.ledger.releases import append, load
first, count = map(int, sys.argv[1:3])
ledger, seed, locks = map(Path, sys.argv[3:])
[record] = load(seed)
def write(number):
    digest = f"sha256:{number:064x}"
    uri = f"127.0.0.1:5050/bakehouse/mpi-cpu@{digest}"
    append(ledger, replace(record, digest=digest, image_uri=uri), locks)
with ThreadPoolExecutor(min(count, 100)) as pool:
    list(pool.map(write, range(first, first + count)))
"""


@pytest.mark.parametrize("each", [12, pytest.param(40, marks=pytest.mark.release)])
def test_concurrent_writers_lose_nothing(tmp_path: Path, each: int) -> None:
    """Each in a thread of one of three processes."""
    path, seed = tmp_path / "releases.json", tmp_path / "seed.json"
    seed.write_text(LEDGER)
    arguments = [str(path), str(seed), str(tmp_path / "locks")]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(number * each), str(each), *arguments])
        for number in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert {record.digest for record in load(path)} == {f"sha256:{n:064x}" for n in range(3 * each)}
    assert [*tmp_path.glob(".*")] == []


def damaged(directory: Path, text: str) -> str:
    path = directory / "releases.json"
    path.write_text(text)
    error = raised(RecipeError, append, path, a_record(), directory / "locks")
    assert path.read_text() == text
    (diagnostic,) = error.diagnostics
    assert diagnostic.hint == f"restore it with `git checkout -- {path}`; nothing was written to it"
    assert diagnostic.location
    return f"{diagnostic.location.line}:{diagnostic.location.column} {diagnostic.message}"


def changed(**values: object) -> str:
    document = json.loads(LEDGER)
    document["releases"][0] |= values
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1 the ledger of releases is damaged: it is not JSON: Expecting value"),
        (OLD[:60], "5:22 the ledger of releases is damaged: it is not JSON: Expecting ',' delimiter"),
        ("[" * 100_000, "1:1 the ledger of releases is damaged: it is nested too deeply"),
        ("[]", "1:1 the ledger of releases is damaged: expected `object`, got `array`"),
        ("{}", "1:1 the ledger of releases is damaged: object missing required field `format`"),
        (
            '{"format": 1, "releases": [], "more": 1}',
            "1:1 the ledger of releases is damaged: unknown field `more`",
        ),
        (
            '{"format": 1, "releases": {}}',
            "1:1 the ledger of releases is damaged: expected `array`, got `object` at `releases`",
        ),
        (
            '{"format": 1, "releases": [3]}',
            "1:1 the ledger of releases is damaged: expected `object | null`, got `int` at `releases[0]`",
        ),
        (
            changed(tested="yes"),
            "1:1 the ledger of releases is damaged: expected `bool`, got `str` at `releases[0].tested`",
        ),
        (
            changed(bytes=True),
            "1:1 the ledger of releases is damaged: expected `int`, got `bool` at `releases[0].bytes`",
        ),
        (
            changed(tags=[1]),
            "1:1 the ledger of releases is damaged: expected `str`, got `int` at `releases[0].tags[0]`",
        ),
        (
            changed(parts=[{"component": "x"}]),
            "1:1 the ledger of releases is damaged: "
            "object missing required field `version` at `releases[0].parts[0]`",
        ),
        (changed(digest="sha256:12"), "1:1 the ledger of releases is damaged: `sha256:12` is not a digest"),
        (
            changed(image_uri="elsewhere"),
            "1:1 the ledger of releases is damaged: "
            "`elsewhere` does not match its registry, repository and digest",
        ),
    ],
    ids=[
        *("empty", "cut off", "brackets", "a list", "nothing in it", "more", "releases"),
        *("a release", "tested", "bytes", "tags", "parts", "digest", "image_uri"),
    ],
)
def test_a_damaged_ledger_is_reported_and_kept(tmp_path: Path, text: str, message: str) -> None:
    assert damaged(tmp_path, text) == message


def test_a_damaged_ledger_as_a_person_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("releases.json").write_text("{]")
    assert refusal(RecipeError, load, Path("releases.json")) == (
        "error: the ledger of releases is damaged: it is not JSON: "
        "Expecting property name enclosed in double quotes\n"
        "  --> releases.json:1:2\n"
        "\n"
        "hint: restore it with `git checkout -- releases.json`; nothing was written to it\n"
    )


def test_release_notes_list_the_changes_since_the_release_before() -> None:
    skipped = ReleasedCheck("gpu", "not tested")
    first = replace(
        a_record(),
        checks=(ReleasedCheck("mpi_2x2", "passed"), skipped),
        parts=(ReleasedComponent("a", "1", ""),),
        revision="1" * 40,
    )
    second = replace(
        first,
        digest=OTHER,
        image_uri=first.image_uri.replace(first.digest, OTHER),
        date="2026-11-21",
        parts=(ReleasedComponent("a", "2", ""), ReleasedComponent("b", "1", "")),
        checks=(ReleasedCheck("mpi_2x2", "passed"), replace(skipped, outcome="passed")),
        bytes=600_000_000,
        revision="2" * 40,
    )
    candidate = replace(second, candidate=True, digest=DIGEST)

    def between(image: str, before: str, after: str) -> list[str]:
        assert (image, before, after) == ("mpi-cpu", first.revision, second.revision)
        return ["Python package six 1 → 2"]

    dirty = tables.release_notes([first, replace(second, revision=f"{second.revision}-dirty")], between)
    assert "- packages, code and recipe: not known, because a release is not of a commit\n" in dirty
    assert tables.release_notes([replace(first, candidate=True)], between) == ""
    assert tables.release_notes([first], between) == (
        f"## mpi-cpu 2026-11-20\n\n`{first.image_uri}`\n\nFirst release, 595.0 MB.\n\n- a 1\n\n"
        "Checks: 1 passed, `gpu` not tested.\n\n"
    )
    assert tables.release_notes([first, second, candidate], between) == (
        f"## mpi-cpu 2026-11-21\n\n`{second.image_uri}`\n\n"
        f"Changes since 2026-11-20 (`{first.digest[:19]}`):\n\n"
        "- a 1 → 2\n- b 1 added\n- size 595.0 MB → 600.0 MB\n- Python package six 1 → 2\n"
        "- check gpu not tested → passed\n\n"
        "Checks: 2 passed.\n\n"
    )
