"""The page that says which form of a job can start which launcher."""

from tests.support.form_matrix import PAGE, text


def test_the_page_has_the_forms_that_print_each_job() -> None:
    assert PAGE.read_text() == text()
