"""Tests of Bakehouse."""

import pytest

# A failed assertion of a helper shows the values that it compared, as one in a test does.
pytest.register_assert_rewrite("tests.support", "tests.integration", "tests.docs")
