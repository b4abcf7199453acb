import pytest

from tests.experiments.worlds import write_folder

PEOPLE = ("Ann Lee", "Bob Ray", "Cid Fox", "Dan Orr", "Eva Poe", "Fay Kim", "Gus Tao", "Hal Roe")


@pytest.fixture(scope="session")
def films(tmp_path_factory):
    """A folder `films`: each question asks when the maker of a film was born; film and person are the evidence."""
    corpus, queries = [], []
    for number, person in enumerate(PEOPLE):
        corpus.append({"id": f"f{number}", "title": f"Film {number}", "text": f"Film {number} was made by {person}."})
        corpus.append({"id": f"p{number}", "title": person, "text": f"{person} was born in {1900 + number}."})
        shown = [(number + step) % len(PEOPLE) for step in range(3)]
        queries.append(
            {
                "id": f"q{number}",
                "question": f"When was the maker of Film {number} born?",
                "answers": [str(1900 + number)],
                "gold": [f"f{number}", f"p{number}"],
                "candidates": [f"{kind}{one}" for one in shown for kind in "fp"],
                "article": "even" if number % 2 == 0 else "odd",
                "split": "train",
            }
        )
    return write_folder(tmp_path_factory.mktemp("data") / "films", corpus, queries).parent
