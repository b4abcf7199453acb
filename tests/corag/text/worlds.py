"""What tests of data and texts share."""


def data_names(value):
    """Yield what a configuration names as `data`, at any depth."""
    if isinstance(value, dict):
        yield from (value["data"],) if isinstance(value.get("data"), str) else ()
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from data_names(one)
