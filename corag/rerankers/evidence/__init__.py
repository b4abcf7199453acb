"""Values of combinations from a distribution over which chunks are the evidence of a question.

Every small set of candidates is a hypothesis: "these chunks, and no others, are the evidence". All that is learnt and
all that is slow is done once per question; an order costs microseconds.

`signals` reads chunks and compares them with the question and with each other; `reranker` lists the sets, describes
them, gives them probabilities and values orders.
"""
