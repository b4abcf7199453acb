"""Chunks about topics, an embedder that tells them apart, and a summarizer that counts what it is asked."""

import numpy as np

from corag import Chunk
from tests.fakes import FakeSummarizer, HashEmbedder


class TopicEmbedder:
    """Texts of one topic, named by their first word, lie close together."""

    name, dimension = "topic", 16

    def embed(self, texts):
        rows = []
        for text in texts:
            topic, noise = HashEmbedder().embed([text.split()[0], text]).astype(float)
            rows.append(np.concatenate([topic, 0.1 * noise]))
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), 16)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def first_of_all():
    """A summarizer that says the first word, marked."""
    return FakeSummarizer(lambda request: f"{request.texts[0].split()[0]} sum of {len(request.texts)}")


def topics(number, size):
    return [
        Chunk(f"{topic}-{place}", f"topic{topic} text number {place}")
        for topic in range(number)
        for place in range(size)
    ]
