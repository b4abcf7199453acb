"""Small real models with random weights and their tokenizers, saved as a hub would have them."""

import json
import shutil
import string
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from corag.engine.source import quiet
from corag.minilm import model_folder

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORDS = ["▁river", "▁Berlin", "▁capital", "▁Germany", "▁the", "▁flow", "ing", "▁.", "▁?", "."]


def save_bert(folder: Path, *, num_labels=1, **config) -> Path:
    """Save a BERT cross-encoder with MiniLM's tokenizer and a window of 512 tokens."""
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=30522, num_labels=num_labels, initializer_range=0.3, **{**SIZES, **config}
    )
    with quiet():
        transformers.BertForSequenceClassification(settings).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(model_folder() / file, folder / file)
    return folder


def save_xlm_roberta(folder: Path) -> Path:
    """Save an XLM-RoBERTa cross-encoder with a Unigram tokenizer and 62 positions for tokens."""
    torch.manual_seed(0)
    tokenizer = transformers.XLMRobertaTokenizer(vocab=unigram_vocabulary())
    tokenizer.save_pretrained(folder)
    settings = transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer),
        num_labels=1,
        initializer_range=0.3,
        max_position_embeddings=64,
        type_vocab_size=1,
        pad_token_id=1,
        **SIZES,
    )
    with quiet():
        transformers.XLMRobertaForSequenceClassification(settings).save_pretrained(folder)
    return folder


def change_json(file: Path, **changes) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def unigram_vocabulary() -> list[tuple[str, float]]:
    letters = [*string.ascii_letters, *string.digits, "▁", *string.punctuation, "漢", "é", "\u0301"]
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    return [*special, *((word, -3.0) for word in WORDS[:-1]), *((letter, -6.0) for letter in letters), ("<mask>", 0.0)]


def wordpiece() -> Tokenizer:
    """MiniLM's own."""
    return Tokenizer.from_file(str(model_folder() / "tokenizer.json"))


def unigram(*, split_words=True, prepend="always") -> Tokenizer:
    """As XLM-RoBERTa's; without `split_words` as that of T5 or DeBERTa, which keep line breaks."""
    tokenizer = Tokenizer(models.Unigram(unigram_vocabulary(), unk_id=3))
    squeeze = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), squeeze])
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]) if split_words else metaspace
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A", "</s>"],
        pair=["<s>", "$A", "</s>", "</s>", "$B", "</s>"],
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def byte_level() -> Tokenizer:
    """Bytes as in GPT-2 and ModernBERT, where two line breaks are a token of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*alphabet, "ĊĊ", "[CLS]", "[SEP]"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("Ċ", "Ċ")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer
