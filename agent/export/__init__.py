"""Agents for others: model cards, the Hugging Face hub, ONNX."""
