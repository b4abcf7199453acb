"""Steps of the library, shown by whoever runs them."""

from contextlib import contextmanager

from corag.progress import counted, showing


@contextmanager
def told(reports, description):
    reports.append(description)
    yield lambda done, total: reports.append((done, total))


def test_counted_items_are_reported_where_somebody_listens():
    reports = []
    assert list(counted("quiet", "ab")) == ["a", "b"]
    with showing(lambda description: told(reports, description)):
        assert list(counted("work", {"a": 1, "b": 2}.items())) == [("a", 1), ("b", 2)]
        assert list(counted("nothing", [])) == []
    assert reports == ["work", (0, 2), (1, 2), "nothing"]
