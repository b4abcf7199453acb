"""The scoring engine: token ids to values, as fast as the encoder behind it allows.

`batches` packs rows by length, `backends` runs a transformers model through OpenVINO or PyTorch, `Engine` joins the
two, `pairs` turns (question, text) into token ids, `store` keeps values between runs.
"""
