"""Values of ordered combinations from a distribution over which chunks are the evidence of a question.

Every small set of candidates is a hypothesis: "these chunks, and no others, are the evidence". All that is learnt and
all that is slow is done once per question; an order costs microseconds.

`passages` reads a chunk, `signals` compares chunks with the question and with each other, `hypotheses` lists the sets
and describes them, `network` gives them probabilities, `values` values orders, `reranker` puts them together.
"""
