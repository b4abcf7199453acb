"""What CORAG does on a GPU, in at most nine minutes: `python -m experiments.bench.gpu --out DIR`.

Parity with the CPU, tokens and orders a second, labelling, training, memory. Needs torch, transformers and lightning
beside the project's own packages, MiniLM's files from a folder or its package, and no index, tracker or network. On a
CPU it measures the CPU; `--size small` is for a quick look.
"""
