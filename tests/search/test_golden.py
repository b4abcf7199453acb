import json

import pytest

from tests.search.golden import GOLDEN, PROBLEMS, replay


@pytest.mark.parametrize("name", PROBLEMS)
def test_golden(name):
    golden = json.loads((GOLDEN / f"search_{name}.json").read_text())
    again = replay(golden)
    assert again["result"].pop("utility") == pytest.approx(golden["result"].pop("utility"), rel=1e-12)
    assert again == golden
