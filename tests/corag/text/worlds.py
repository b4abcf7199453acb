"""What tests of data and texts share."""


def data_names(value):
    """Yield what a configuration names as `data`, at any depth."""
    if isinstance(value, dict):
        yield from (value["data"],) if isinstance(value.get("data"), str) else ()
        # Figures of a paper, and what is left out, name the values of a study's axes.
        value = [one for name, one in value.items() if name not in ("published", "skip")]
    if isinstance(value, list):
        for one in value:
            yield from data_names(one)
