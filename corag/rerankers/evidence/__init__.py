"""Values of combinations from a distribution over which chunks are the evidence of a question.

Every small set of candidates is a hypothesis: "these chunks, and no others, are the evidence". All that is learnt and
all that is slow is done once per question; an order costs microseconds.
"""
