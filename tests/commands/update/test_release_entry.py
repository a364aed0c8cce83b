"""Entries of releases as written in the files of components."""

from pathlib import Path

from bakehouse.catalog.component import Component
from bakehouse.commands.update.release_draft import read_copy
from bakehouse.commands.update.release_entry import entry_text, insert, read_entry, with_version
from bakehouse.errors import BuildError
from tests.support.data import text_of
from tests.support.errors import raised

COMMENTED = text_of(__file__, "commented")
NEW = """\
  - version: "1.11"
    source: "https://example.org/1.11#notes"
    notes: |
      # Kernels
      They are slow.

      # Other
    environment: {LEVEL: 3.10, MODE: 'fast # not slow'}
"""


def component_of(directory: Path, text: str) -> Component:
    (directory / "library").mkdir()
    (directory / "library" / "component.yaml").write_text(text)
    return read_copy(directory / "library")


def test_comments_are_left_out_and_all_values_stay_text(tmp_path: Path) -> None:
    component = component_of(tmp_path, COMMENTED)
    newest, oldest = component.releases
    assert entry_text(COMMENTED, oldest)[0] == '  - version: "1.0"\n    source: https://example.org/1.0\n'
    entry = read_entry(COMMENTED, newest)
    with_version(entry, "1.11")
    first = "  - version: 1.10"
    assert insert(COMMENTED, component, entry) == COMMENTED.replace(first, f"{NEW}{first}")


def test_a_version_keeps_its_quotes(tmp_path: Path) -> None:
    text = COMMENTED.replace("version: 1.10", "version: '1.10'")
    entry = read_entry(text, component_of(tmp_path, text).releases[0])
    with_version(entry, "1.11")
    assert entry.text(2).startswith("  - version: '1.11'\n")


def test_a_release_that_does_not_start_a_line_is_an_error(tmp_path: Path) -> None:
    text = 'summary: A library\nreleases: [{version: "1.0", source: "https://example.org/a-b"}]\n'
    [release] = component_of(tmp_path, text).releases
    error = raised(BuildError, read_entry, text, release)
    assert error.diagnostics[0].message == "release 1.0 is not a line that starts with `- `"
