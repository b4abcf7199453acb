"""Small real models with random weights and their tokenizers, saved as a hub would have them."""

import hashlib
import json
import shutil
import string
import sys
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import dynamic_module_utils

from corag.models.checkpoint import BGE_M3
from corag.models.engine import quiet
from corag.text.tokens import model_folder

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WINDOW = 62
BYTES = Path(__file__).with_name("bytes.json")
"""A tokenizer of bytes as in GPT-2 and ModernBERT, where two line breaks are a token of their own."""
WORDS = ["▁river", "▁Berlin", "▁capital", "▁Germany", "▁the", "▁flow", "ing", "▁.", "▁?", "."]


def save_bert(folder, *, num_labels=1, **config):
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


def save_xlm_roberta(folder):
    """Save an XLM-RoBERTa cross-encoder with a Unigram tokenizer and a window of 62 tokens."""
    torch.manual_seed(0)
    tokenizer = transformers.XLMRobertaTokenizer(vocab=unigram_vocabulary(), model_max_length=WINDOW)
    tokenizer.save_pretrained(folder)
    settings = transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer),
        num_labels=1,
        initializer_range=0.3,
        max_position_embeddings=WINDOW + 2,
        type_vocab_size=1,
        pad_token_id=1,
        **SIZES,
    )
    with quiet():
        transformers.XLMRobertaForSequenceClassification(settings).save_pretrained(folder)
    return folder


def change_json(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def unigram_vocabulary():
    letters = [*string.ascii_letters, *string.digits, "▁", *string.punctuation, "漢", "é", "\u0301"]
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    return [*special, *((word, -3.0) for word in WORDS[:-1]), *((letter, -6.0) for letter in letters), ("<mask>", 0.0)]


def save_bge_m3(folder):
    """Save a small XLM-RoBERTa in the files that the main revision of BAAI/bge-m3 has: its weights are a pickle."""
    save_xlm_roberta(folder)
    settings = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    with quiet():
        encoder = transformers.XLMRobertaModel(settings)
    older = {"embeddings.position_ids": torch.arange(WINDOW + 2)[None]}  # as transformers 4 wrote it
    torch.save({**encoder.state_dict(), **older}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    change_json(folder / "config.json", architectures=["XLMRobertaModel"], transformers_version="4.33.0")
    shutil.copytree(Path(__file__).with_name("m3"), folder, dirs_exist_ok=True)
    for name, size in {"colbert": 32, "sparse": 1}.items():
        torch.save(torch.nn.Linear(32, size).state_dict(), folder / f"{name}_linear.pt")
    return folder


OWN_CODE = Path(__file__).with_name("own_reranker.txt")
"""The module of a model, but for the type that its configuration claims."""


def save_own_code(folder, code=None, *, model_type="bert", repository=""):
    """Save a BERT cross-encoder that runs only with a module, beside it or in `code`, which negates the logit.

    As in the first rerankers of Jina, the configuration claims a type that transformers has, and names no labels.
    """
    save_bert(folder)
    weights = load_file(folder / "model.safetensors")
    renamed = {name.replace("classifier.", "head."): tensor for name, tensor in weights.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    (code or folder).mkdir(exist_ok=True, parents=True)
    ((code or folder) / "own_reranker.py").write_text(OWN_CODE.read_text().replace("{model_type}", model_type))
    module = f"{repository}--own_reranker" if repository else "own_reranker"
    written = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in written.items() if name not in ("architectures", "id2label", "label2id")}
    classes = {"AutoConfig": "OwnConfig", "AutoModelForSequenceClassification": "OwnReranker"}
    auto_map = {name: f"{module}.{own}" for name, own in classes.items()}
    (folder / "config.json").write_text(json.dumps({**kept, "model_type": model_type, "auto_map": auto_map}))
    return folder


def put_on_hub(cache, name, folder):
    """Place a folder where the hub's cache would hold a repository."""
    repository = cache / f"models--{name.replace('/', '--')}"
    commit = hashlib.sha1(name.encode()).hexdigest()
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)


JINA_V1, JINA_V2 = "jinaai/jina-reranker-v1-turbo-en", "jinaai/jina-reranker-v2-base-multilingual"
GTE, NEW_IMPL = "Alibaba-NLP/gte-multilingual-reranker-base", "Alibaba-NLP/new-impl"
NEED_CODE = (JINA_V1, JINA_V2, GTE)
BGE = ("BAAI/bge-reranker-v2-m3", "BAAI/bge-reranker-large", "BAAI/bge-reranker-base")


@contextmanager
def small_hub(folder, cache):
    """Let a cache of the hub have a small model under the name of each reranker of the paper, and of BGE-M3.

    As on the hub, the weights of BGE-M3 are a pickle, and three rerankers come with code.
    """
    xlm_roberta, own = save_xlm_roberta(folder / "xlm"), save_own_code(folder / "own")
    elsewhere = save_own_code(folder / "gte", folder / "new-impl", model_type="new", repository=NEW_IMPL)
    m3 = save_bge_m3(folder / "m3")
    for name in (*BGE, *NEED_CODE):
        put_on_hub(cache, name, {GTE: elsewhere}.get(name, own if name in NEED_CODE else xlm_roberta))
    put_on_hub(cache, NEW_IMPL, folder / "new-impl")
    put_on_hub(cache, BGE_M3, m3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(cache / "code"))
        patch.setattr(sys, "path", list(sys.path))
        patch.delenv("OWN_CODE_RAN", raising=False)
        yield
        for module in [name for name in sys.modules if name.startswith("transformers_modules")]:
            del sys.modules[module]


def save_sentence_transformer(folder):
    """Save a random sentence-transformers model that pools by the mean, and return its folder."""
    bert = save_bert(folder / "bert")
    parts = [modules.Transformer(str(bert)), modules.Pooling(SIZES["hidden_size"])]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder / "whole"), create_model_card=False)
    return folder / "whole"
