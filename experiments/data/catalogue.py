"""Every data set that can be had by name: what it is, under which licence, where its files are, what converts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from corag.errors import DataError, InputError
from corag.optional import require
from corag.text.documents import Document
from experiments.data import converters
from experiments.data.converters import AMAZON_PHONES, HOLOBENCH_AMOUNTS, HOLOBENCH_DATABASES, Converter, distinct
from experiments.data.fetch import EXTRA, Files, Hub, Remote, Url
from experiments.data.folder import Question

_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set that can be had by name.

    Attributes:
        name: Name.
        what: What it holds, in a few words.
        licence: Licence of the data.
        home: Page about it.
        num_questions: Questions of all splits, about.
        num_passages: Passages, about.
        megabytes: Size of the download, about.
        files: Files of each split, and of other parts such as the corpus.
        questions: Converter of a split.
        passages: Converter of a corpus that the questions share, if there is one.
        splits: Its splits; by default every part of `files` is one.
        num_default_splits: How many splits, the first ones, are fetched if none are named; 0 for all.
        own_passages: Whether the set has passages at all; else another data folder's corpus is needed.
        by_ir_datasets: Whether `ir_datasets` fetches the files, and keeps them in a folder of its own.
    """

    name: str
    what: str
    licence: str
    home: str
    num_questions: int
    num_passages: int
    megabytes: int
    questions: Converter
    files: Mapping[str, tuple[Remote, ...]] = field(default_factory=dict)
    passages: Callable[[Files], Iterator[Document]] | None = None
    splits: tuple[str, ...] = ()
    num_default_splits: int = 0
    own_passages: bool = True
    by_ir_datasets: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", self.splits or tuple(self.files))

    @property
    def default_splits(self) -> tuple[str, ...]:
        """Splits that are fetched if none are named."""
        return self.splits[: self.num_default_splits or None]

    def parts(self, splits: tuple[str, ...]) -> list[str]:
        """Return the parts of `files` that some splits need."""
        return [part for part in self.files if part not in self.splits or part in splits]


def ir_data_set(name: str, ir_name: str, *, splits: Mapping[str, str] | None = None, **known: Any) -> DataSet:
    """Return any data set of `ir_datasets`, BEIR among them: passages, questions and relevance judgements.

    Args:
        name: Name of the set.
        ir_name: Its name in `ir_datasets`, which has the passages.
        splits: Name in `ir_datasets` of the questions of each split; by default the parts `train`, `dev` and `test`
            if there are some, else its own questions.
        known: Fields of the set.
    """
    home = f"https://ir-datasets.com/{ir_name.partition('/')[0]}.html"
    defaults = {
        "what": "questions and passages with relevance judgements", "licence": f"see {home}", "home": home,
        "num_questions": 0, "num_passages": 0, "megabytes": 0,
    }  # fmt: skip
    if splits is None:
        registered = list(require("ir_datasets", EXTRA).registry)
        if ir_name not in registered:
            raise InputError(f"ir_datasets has no data set {ir_name!r}; https://ir-datasets.com lists them")
        parts = [part for part in registered if part.rpartition("/")[0] == ir_name]
        splits = {_SPLITS[last]: part for part in parts if (last := part.rpartition("/")[2]) in _SPLITS}
        splits = splits or {_SPLITS.get(ir_name.rpartition("/")[2], "test"): ir_name}
    of_split = dict(splits)
    return DataSet(
        name=name,
        splits=tuple(of_split),
        questions=lambda _, split: _in_ir_datasets(of_split[split], _ir_questions),
        passages=lambda _: _in_ir_datasets(ir_name, _ir_passages),
        by_ir_datasets=True,
        **{**defaults, **known},
    )


def _in_ir_datasets(ir_name: str, read: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Yield what `read` yields of a set of `ir_datasets`, which fetches what it lacks and compares checksums."""
    try:
        yield from read(require("ir_datasets", EXTRA).load(ir_name))
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{ir_name} of ir_datasets cannot be read: {str(error).splitlines()[0]}; run the same command again where "
            "there is a network, or put the files where https://ir-datasets.com says (IR_DATASETS_HOME)"
        ) from error


def _ir_questions(data: Any) -> Iterator[Question]:
    if not data.has_queries():
        raise DataError(f"{data.dataset_id()} of ir_datasets has no questions; name a part of it that has some")
    grades: dict[str, dict[str, int]] = {}
    for judged in data.qrels_iter() if data.has_qrels() else ():
        grades.setdefault(judged.query_id, {})[judged.doc_id] = judged.relevance
    for query in data.queries_iter():
        graded = grades.get(query.query_id, {})
        gold = tuple(name for name, grade in graded.items() if grade > 0)
        extra = {"grades": graded} if set(graded.values()) - {1} else {}
        answers = distinct(*map(str, getattr(query, "answers", None) or ()))
        yield Question(query.query_id, query.default_text(), answers, gold, extra=extra)


def _ir_passages(data: Any) -> Iterator[Document]:
    for document in data.docs_iter():
        text = document.text if hasattr(document, "text") else document.default_text()
        yield Document(document.doc_id, text, getattr(document, "title", "") or "")


_EDC2 = "https://media.githubusercontent.com/media/Tsinghua-dhy/EDC-2-RAG/a47df51e7b6cacef76c079dc28ad7ea48008b8fe"
_PHONES = "https://www.kaggle.com/api/v1/datasets/download/nehasontakke/amazon-unlocked-mobilecsv"
_QED = "https://raw.githubusercontent.com/google-research-datasets/QED/master"
_DPR = "https://dl.fbaipublicfiles.com/dpr/data/retriever"
_CLAPNQ = "https://raw.githubusercontent.com/primeqa/clapnq/main/retrieval"
_POLICYQA = "https://raw.githubusercontent.com/wasiahmad/PolicyQA/main/data"
_TATQA = "https://raw.githubusercontent.com/NExTplusplus/TAT-QA/master/dataset_raw"
_WIKIPASSAGEQA = "https://ciir.cs.umass.edu/downloads/wikipassageqa/WikiPassageQA.zip"
_HOTPOTQA = "1908d6afbbead072334abe2965f91bd2709910ab"
_HALUEVAL = "12a856119f03975a94509091e8cada3e6be6ead7"
_WIKIBIO = "b3cfb73209a8c51582fa1d9b7fe7e45fec5529b2"
_TWO_WIKI = "612bc5039a457880d9e7d84c3b0a4cf154b70e4f"
_TRAIN_DEV = ("train", "dev")


def _helmet(file: str) -> tuple[Remote, ...]:
    return (Hub("princeton-nlp/HELMET", "data.tar.gz", member=f"data/kilt/{file}.jsonl"),)


DATA_SETS = {
    entry.name: entry
    for entry in (
        DataSet(
            name="wikipassageqa", questions=converters.wikipassageqa, passages=converters.wikipassageqa_passages,
            what="non-factoid questions, passages of one Wikipedia page answer; no reference answers",
            licence="none given; text of Wikipedia, CC BY-SA 3.0",
            home="https://ciir.cs.umass.edu/downloads/wikipassageqa/",
            num_questions=4_165, num_passages=50_477, megabytes=11, splits=("train", "dev", "test"),
            files={
                **{split: (Url(_WIKIPASSAGEQA, member=f"*{split}.tsv"),) for split in ("train", "dev", "test")},
                "corpus": (Url(_WIKIPASSAGEQA, member="*document_passages.json"),),
            },
        ),
        ir_data_set(
            "msmarco", "msmarco-passage", num_default_splits=2,
            splits={
                "dev": "msmarco-passage/dev/small",
                "test": "msmarco-passage/trec-dl-2019/judged",
                "train": "msmarco-passage/train/judged",
            },
            what="Bing queries over web passages; no reference answers; test is TREC DL 2019",
            licence="MS MARCO terms: non-commercial research only", home="https://microsoft.github.io/msmarco/",
            num_questions=509_962, num_passages=8_841_823, megabytes=1_060,
        ),
        DataSet(
            name="msmarco-qa", questions=converters.msmarco_qa,
            what="MS MARCO 2.1: Bing queries with ten passages each and answers by people",
            licence="MS MARCO terms: non-commercial research only",
            home="https://huggingface.co/datasets/microsoft/ms_marco",
            num_questions=909_824, num_passages=8_000_000, megabytes=2_100, num_default_splits=1,
            files={
                "dev": (Hub("microsoft/ms_marco", "v2.1/validation-*.parquet"),),
                "train": (Hub("microsoft/ms_marco", "v2.1/train-*.parquet"),),
            },
        ),
        DataSet(
            name="hotpotqa", questions=converters.paragraphs("hotpotqa"),
            what="two-hop questions, ten paragraphs each, supporting sentences",
            licence="CC BY-SA 4.0", home="https://hotpotqa.github.io/",
            num_questions=97_852, num_passages=510_000, megabytes=360,
            files={
                "train": (Hub("hotpotqa/hotpot_qa", "distractor/train-*.parquet", _HOTPOTQA),),
                "dev": (Hub("hotpotqa/hotpot_qa", "distractor/validation-*.parquet", _HOTPOTQA),),
            },
        ),
        DataSet(
            name="2wikimultihopqa", questions=converters.paragraphs("2wikimultihopqa"),
            what="two- to four-hop questions, ten paragraphs each, supporting sentences",
            licence="Apache-2.0; text of Wikipedia, CC BY-SA", home="https://github.com/Alab-NII/2wikimultihop",
            num_questions=180_030, num_passages=390_000, megabytes=400,
            files={split: (Hub("xanhho/2WikiMultihopQA", f"{split}.parquet", _TWO_WIKI),) for split in _TRAIN_DEV},
        ),
        DataSet(
            name="musique", questions=converters.musique,
            what="MuSiQue-Ans: two- to four-hop questions, twenty paragraphs each",
            licence="CC BY 4.0", home="https://github.com/StonyBrookNLP/musique",
            num_questions=22_355, num_passages=140_000, megabytes=271,
            files={split: (Hub("dgslibisey/MuSiQue", f"musique_ans_v1.0_{split}.jsonl"),) for split in _TRAIN_DEV},
        ),
        DataSet(
            name="natural-questions", questions=converters.dpr,
            what="Google queries; Wikipedia passages of 100 words, found for DPR, as candidates",
            licence="CC BY-SA 3.0 (questions and text); CC BY-NC 4.0 (DPR's selection)",
            home="https://github.com/facebookresearch/DPR",
            num_questions=65_395, num_passages=2_000_000, megabytes=2_571, num_default_splits=1,
            files={
                "dev": (Url(f"{_DPR}/biencoder-nq-dev.json.gz", "2640483dbe0df7ae29c6da419c551a80"),),
                "train": (Url(f"{_DPR}/biencoder-nq-train.json.gz", "a1c927b5adae71388eb064329387709f"),),
            },
        ),
        DataSet(
            name="nq_qed", questions=converters.qed,
            what="Google queries with their Wikipedia paragraph, explained by QED",
            licence="CC BY-SA 3.0", home="https://github.com/google-research-datasets/QED",
            num_questions=8_060, num_passages=7_500, megabytes=24,
            files={split: (Url(f"{_QED}/qed-{split}.jsonlines"),) for split in _TRAIN_DEV},
        ),
        DataSet(
            name="triviaqa", questions=converters.dpr,
            what="trivia questions; Wikipedia passages of 100 words, found for DPR, as candidates",
            licence="Apache-2.0 (questions); CC BY-SA 3.0 (text); CC BY-NC 4.0 (DPR's selection)",
            home="https://github.com/facebookresearch/DPR",
            num_questions=69_250, num_passages=2_000_000, megabytes=2_056, num_default_splits=1,
            files={
                "dev": (Url(f"{_DPR}/biencoder-trivia-dev.json.gz", "d559dffe09acfe5a6370adea55b8abf2"),),
                "train": (Url(f"{_DPR}/biencoder-trivia-train.json.gz", "5aa4d3577c91425cd20e239ed89a252b"),),
            },
        ),
        DataSet(
            name="edc2-rag", questions=converters.edc2,
            what="questions of WebQuestions and TriviaQA, and passages that help or do not, by DPR's reader",
            licence="MIT (selection); questions CC BY 4.0 and Apache-2.0; text of Wikipedia, CC BY-SA 3.0",
            home="https://github.com/Tsinghua-dhy/EDC-2-RAG",
            num_questions=2_371, num_passages=400_000, megabytes=400,
            files={
                "webq": (Url(f"{_EDC2}/webq/datasets/webq_results_w_negative_passages_full.json"),),
                "triviaqa": (Url(f"{_EDC2}/triviaq/datasets/trivia_results_w_negative_passages_full.json"),),
            },
        ),
        DataSet(
            name="amazon-phones", questions=converters.amazon_phones,
            what="products with 4 to 75 reviews each, and a question about each product; no reference answers",
            licence="not given; reviews by customers of Amazon",
            home="https://www.kaggle.com/datasets/nehasontakke/amazon-unlocked-mobilecsv",
            num_questions=300, num_passages=9_000, megabytes=40,
            files={split: (Url(_PHONES, member="*Amazon_Unlocked_Mobile*.csv"),) for split in AMAZON_PHONES},
        ),
        DataSet(
            name="squad", questions=converters.squad,
            what="SQuAD 1.1: spans of Wikipedia paragraphs as answers",
            licence="CC BY-SA 4.0", home="https://rajpurkar.github.io/SQuAD-explorer/",
            num_questions=98_169, num_passages=20_958, megabytes=16,
            files={
                "train": (Hub("rajpurkar/squad", "plain_text/train-*.parquet"),),
                "dev": (Hub("rajpurkar/squad", "plain_text/validation-*.parquet"),),
            },
        ),
        DataSet(
            name="policyqa", questions=converters.policyqa,
            what="questions about websites' privacy policies, answered by spans of their segments",
            licence="MIT", home="https://github.com/wasiahmad/PolicyQA",
            num_questions=20_900, num_passages=2_900, megabytes=11,
            files={split: (Url(f"{_POLICYQA}/{split}.json"),) for split in _TRAIN_DEV},
        ),
        DataSet(
            name="tatqa", questions=converters.tatqa,
            what="financial reports, a table and its paragraphs as candidates; questions answered by spans",
            licence="CC BY 4.0", home="https://nextplusplus.github.io/TAT-QA/",
            num_questions=8_400, num_passages=13_600, megabytes=15,
            files={split: (Url(f"{_TATQA}/tatqa_dataset_{split}.json"),) for split in _TRAIN_DEV},
        ),
        DataSet(
            name="multihop-rag", questions=converters.multihop_rag, passages=converters.multihop_rag_articles,
            what="questions over several news articles, facts as spans; some have no answer",
            licence="ODC-BY 1.0", home="https://huggingface.co/datasets/yixuantt/MultiHopRAG",
            num_questions=2_556, num_passages=609, megabytes=12, splits=("test",),
            files={
                "test": (Hub("yixuantt/MultiHopRAG", "MultiHopRAG.json"),),
                "corpus": (Hub("yixuantt/MultiHopRAG", "corpus.json"),),
            },
        ),
        DataSet(
            name="multihoprag_facts", questions=converters.multihop_rag_facts,
            what="the same with the facts as passages",
            licence="ODC-BY 1.0", home="https://huggingface.co/datasets/yixuantt/MultiHopRAG",
            num_questions=2_556, num_passages=2_000, megabytes=5,
            files={"test": (Hub("yixuantt/MultiHopRAG", "MultiHopRAG.json"),)},
        ),
        DataSet(
            name="clapnq", questions=converters.clapnq, passages=converters.clapnq_passages,
            what="Google queries with long answers over Wikipedia passages; half have none",
            licence="Apache-2.0; text CC BY-SA 3.0", home="https://github.com/primeqa/clapnq",
            num_questions=4_345, num_passages=178_891, megabytes=150, splits=_TRAIN_DEV,
            files={
                **{
                    split: tuple(
                        Hub("PrimeQA/clapnq", f"clapnq_{split}_{kind}.jsonl") for kind in ("answerable", "unanswerable")
                    )
                    for split in _TRAIN_DEV
                },
                **{
                    f"{split}-retrieval": (Url(f"{_CLAPNQ}/{split}/question_{split}_answerable.tsv"),)
                    for split in _TRAIN_DEV
                },
                "corpus": (Hub("PrimeQA/clapnq_passages", "passages.tsv"),),
            },
        ),
        DataSet(
            name="pubmedqa", questions=converters.pubmedqa,
            what="yes/no/maybe questions over abstracts, labelled by experts",
            licence="MIT", home="https://pubmedqa.github.io/",
            num_questions=1_000, num_passages=1_000, megabytes=1,
            files={"train": (Hub("qiaojin/PubMedQA", "pqa_labeled/train-*.parquet"),)},
        ),
        DataSet(
            name="halueval", questions=converters.halueval,
            what="questions with a right and a hallucinated answer",
            licence="MIT; text of HotpotQA, CC BY-SA 4.0", home="https://github.com/RUCAIBox/HaluEval",
            num_questions=10_000, num_passages=10_000, megabytes=4,
            files={"test": (Hub("pminervini/HaluEval", "qa/data-*.parquet", _HALUEVAL),)},
        ),
        DataSet(
            name="felm", questions=converters.felm, own_passages=False,
            what="segments of ChatGPT's responses, true or false; needs another set's corpus",
            licence="CC BY-NC-SA 4.0", home="https://github.com/hkust-nlp/felm",
            num_questions=4_425, num_passages=0, megabytes=1, num_default_splits=1,
            files={
                split: (Hub("hkust-nlp/felm", f"{split}/test/*.parquet", "refs/convert/parquet"),)
                for split in ("wk", "science", "math", "reasoning", "writing_rec")
            },
        ),
        DataSet(
            name="wikibio", questions=converters.wikibio,
            what="sentences of GPT-3's biographies, true or false, beside Wikipedia's",
            licence="CC BY-SA 3.0", home="https://huggingface.co/datasets/potsawee/wiki_bio_gpt3_hallucination",
            num_questions=1_908, num_passages=238, megabytes=1,
            files={"test": (Hub("potsawee/wiki_bio_gpt3_hallucination", "data/evaluation-*.parquet", _WIKIBIO),)},
        ),
        DataSet(
            name="helmet-rag", questions=converters.helmet,
            what="HELMET's RAG part: up to 1,000 passages a question (128k tokens)",
            licence="none given; questions and text of NQ, TriviaQA, HotpotQA and PopQA",
            home="https://github.com/princeton-nlp/HELMET",
            num_questions=2_500, num_passages=2_000_000, megabytes=11_300,
            files={
                "nq": _helmet("nq-dev-multikilt_1000_k1000_dep6"),
                "triviaqa": _helmet("triviaqa-dev-multikilt_1000_k1000_dep6"),
                "hotpotqa": _helmet("hotpotqa-dev-multikilt_1000_k1000_dep3"),
                "popqa": _helmet("popqa_test_1000_k1000_dep6"),
            },
        ),
        DataSet(
            name="holobench", questions=converters.holobench, splits=tuple(HOLOBENCH_AMOUNTS),
            what="questions over rows of a database told as sentences, 100k tokens each",
            licence="CC BY-SA 4.0", home="https://github.com/megagonlabs/holobench",
            num_questions=360, num_passages=20_000, megabytes=60,
            files={
                part: (Hub("megagonlabs/holobench", pattern),)
                for name in HOLOBENCH_DATABASES
                for part, pattern in ((name, f"{name}/*.csv"), (f"queries-{name}", f"query/{name}.csv"))
            },
        ),
    )
}  # fmt: skip
"""The sets by name. Sizes are those that the sources give, or estimates."""


def find_data_set(name: str) -> DataSet:
    """Return the set of a name: one of `DATA_SETS`, `ir_datasets:NAME`, or `beir:NAME`.

    Raises:
        InputError: There is none of that name; the message lists all.
    """
    if name in DATA_SETS:
        return DATA_SETS[name]
    family, _, rest = name.partition(":")
    if family == "ir_datasets" and rest:
        return ir_data_set(name, rest)
    if family == "beir" and rest:
        return ir_data_set(name, f"beir/{rest}", licence="that of the set; see https://github.com/beir-cellar/beir")
    similar = get_close_matches(name, DATA_SETS, 1)
    meant = f"; did you mean {similar[0]!r}?" if similar else ""
    raise InputError(
        f"there is no data set {name!r}{meant} The sets are {', '.join(DATA_SETS)}, ir_datasets:NAME and beir:NAME"
    )
