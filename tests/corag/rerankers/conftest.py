"""What all tests of rerankers share."""

import pytest

import corag


@pytest.fixture(scope="package", autouse=True)
def _exact():
    """Compute in fp32 whatever the processor has: expected values are those of every machine."""
    with corag.runtime(precision="fp32"):
        yield
