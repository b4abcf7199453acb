import corag
from corag.models.known import KNOWN_RERANKERS
from corag.registry import RERANKERS
from corag.rerankers.descriptions import DESCRIPTIONS, LONGEST, description_of

CARD = """---
license: apache-2.0
tags: [reranker]
---
# My reranker

<p align="center"><img src="logo.png"></p>

For questions about [contracts](https://example.org) and leases.

```python
load("it")
```

| metric | value |
| --- | --- |

Trained on 3,000 pairs.
"""


def test_every_reranker_that_ships_or_is_known_has_a_description_of_its_own():
    assert set(RERANKERS.local) <= set(DESCRIPTIONS) and set(KNOWN_RERANKERS) <= set(DESCRIPTIONS)
    texts = [description_of(name) for name in DESCRIPTIONS]
    assert len(set(texts)) == len(texts)
    # Embedders see the whole text.
    counts = corag.tokens().count(texts)
    assert counts.min() > 20 and counts.max() < 200


def test_a_model_card_describes_a_folder(tmp_path):
    assert description_of(str(tmp_path)) is None
    (tmp_path / "README.md").write_text(CARD)
    said = "For questions about contracts and leases. Trained on 3,000 pairs."
    assert description_of(str(tmp_path)) == said
    assert description_of(f"cross-encoder(model={tmp_path})") == said
    (tmp_path / "README.md").write_text("word " * 1000)
    assert len(description_of(str(tmp_path))) <= LONGEST
    (tmp_path / "README.md").write_bytes(b"\xff\xfe only headings\n# Title\n")
    assert description_of(str(tmp_path)).endswith("only headings")
    (tmp_path / "README.md").write_text("# Title\n")
    assert description_of(str(tmp_path)) is None
