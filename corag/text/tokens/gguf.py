"""The tokenizer that a GGUF file holds, as llama.cpp and Ollama read it.

See https://github.com/ggml-org/ggml/blob/master/docs/gguf.md for the fields. How a text is split before its bytes are
merged is not in the file: it has the name of a rule, which llama.cpp knows (src/llama-vocab.cpp there).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTROL, _USER_DEFINED = 3, 4
_UNKNOWN, _BEGIN_OF_WORD = 2, "\u2581"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CL100K = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _by_case(end: str, digits: str) -> str:
    """Return the rule that splits words where upper case begins."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    begin = r"[^\r\n\p{L}\p{N}]?"
    words = f"{begin}{upper}*{lower}+{end}|{begin}{upper}+{lower}*{end}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_RULES: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_CL100K,),
    "dbrx": (_CL100K,),
    "qwen2": (_CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),),
    "tekken": (_by_case("", r"\p{N}"),),
    "gpt-4o": (_by_case(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),),
}
_WHOLE_WORDS = ("llama-bpe", "tekken")
"""Rules under which a word that is a token is not merged from its bytes."""


def tokenizer_of(fields: Mapping[str, Any]) -> Tokenizer | None:
    """Return the tokenizer that the fields `tokenizer.ggml.*` describe; None for kinds that are not known here."""
    from tokenizers import AddedToken

    known = {key.removeprefix("tokenizer.ggml."): value for key, value in fields.items()}
    pieces, types = known.get("tokens"), known.get("token_type")
    if not pieces or not types or len(pieces) != len(types):
        return None
    if known.get("model") == "gpt2" and known.get("merges") and known.get("pre") in _RULES:
        tokenizer = _byte_level(pieces, known["merges"], known["pre"])
    elif known.get("model") == "llama" and known.get("scores"):
        tokenizer = _by_score(pieces, known["scores"], types, prefix=bool(known.get("add_space_prefix", True)))
    else:
        return None
    own = [(piece, kind) for piece, kind in zip(pieces, types, strict=True) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece, kind in own if kind == _CONTROL])
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece, kind in own if kind == _USER_DEFINED])
    return tokenizer


def _byte_level(pieces: Sequence[str], merges: Sequence[str], rule: str) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=rule in _WHOLE_WORDS))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _RULES[rule]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


def _by_score(pieces: Sequence[str], scores: Sequence[float], types: Sequence[int], *, prefix: bool) -> Tokenizer:
    """Return a tokenizer that merges the pair whose piece has the highest score, as SentencePiece's BPE does."""
    from tokenizers import Tokenizer, models, normalizers

    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    unknown = next((piece for piece, kind in zip(pieces, types, strict=True) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(
        models.BPE(vocabulary, list(_merges(vocabulary, scores)), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    spaces: list[Any] = [normalizers.Prepend(_BEGIN_OF_WORD)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*spaces, normalizers.Replace(" ", _BEGIN_OF_WORD)])
    return tokenizer


def _merges(vocabulary: Mapping[str, int], scores: Sequence[float]) -> Iterator[tuple[str, str]]:
    for piece in sorted(vocabulary, key=lambda piece: -scores[vocabulary[piece]]):
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [(first, second) for first, second in halves if first in vocabulary and second in vocabulary]
        yield from sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
