"""Results of campaigns: their scripts write them into the page about robustness."""

import re

import pytest

from benchmarks.campaign_results import PAGE, with_row

CAMPAIGNS = re.findall("<!-- result of (.*) -->", PAGE.read_text())


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_a_campaign_replaces_its_own_row(campaign: str) -> None:
    page = with_row(PAGE.read_text(), campaign, "| a | b | c | d |\n")

    assert with_row(page, campaign, "| a | b | c | d |\n") == page
    assert page.count("| a | b | c | d |\n") == 1
    assert re.findall("<!-- result of (.*) -->", page) == CAMPAIGNS


def test_a_campaign_without_a_place_is_an_error() -> None:
    with pytest.raises(AssertionError, match="has no place for others"):
        with_row(PAGE.read_text(), "others", "")
