"""Every data set that can be had by name."""

from __future__ import annotations

from difflib import get_close_matches

from corag.errors import InputError
from experiments.data.sources import long_context, multihop, open_domain, reading, reviews, statements
from experiments.data.sources.ir import ir_source
from experiments.data.sources.source import Hub, Remote, Source, Url

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


def _clapnq(split: str) -> dict[str, tuple[Remote, ...]]:
    kinds = ("answerable", "unanswerable")
    return {
        split: tuple(Hub("PrimeQA/clapnq", f"clapnq_{split}_{kind}.jsonl") for kind in kinds),
        f"{split}-retrieval": (Url(f"{_CLAPNQ}/{split}/question_{split}_answerable.tsv"),),
    }


def _helmet(file: str) -> tuple[Remote, ...]:
    return (Hub("princeton-nlp/HELMET", "data.tar.gz", member=f"data/kilt/{file}.jsonl"),)


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="wikipassageqa",
            what="non-factoid questions, passages of one Wikipedia page answer; no reference answers",
            licence="none given; text of Wikipedia, CC BY-SA 3.0",
            home="https://ciir.cs.umass.edu/downloads/wikipassageqa/",
            num_questions=4_165, num_passages=50_477, megabytes=11,
            splits=("train", "dev", "test"),
            parts={
                **{split: (Url(_WIKIPASSAGEQA, member=f"*{split}.tsv"),) for split in ("train", "dev", "test")},
                "corpus": (Url(_WIKIPASSAGEQA, member="*document_passages.json"),),
            },
            questions=open_domain.wikipassageqa, passages=open_domain.wikipassageqa_passages,
        ),
        ir_source(
            "msmarco", "msmarco-passage",
            splits={
                "dev": "msmarco-passage/dev/small",
                "test": "msmarco-passage/trec-dl-2019/judged",
                "train": "msmarco-passage/train/judged",
            },
            num_default_splits=2,
            what="Bing queries over web passages; no reference answers; test is TREC DL 2019",
            licence="MS MARCO terms: non-commercial research only",
            home="https://microsoft.github.io/msmarco/",
            num_questions=509_962, num_passages=8_841_823, megabytes=1_060,
        ),
        Source(
            name="msmarco-qa",
            what="MS MARCO 2.1: Bing queries with ten passages each and answers by people",
            licence="MS MARCO terms: non-commercial research only",
            home="https://huggingface.co/datasets/microsoft/ms_marco",
            num_questions=909_824, num_passages=8_000_000, megabytes=2_100,
            splits=("dev", "train"), num_default_splits=1,
            parts={
                "dev": (Hub("microsoft/ms_marco", "v2.1/validation-*.parquet"),),
                "train": (Hub("microsoft/ms_marco", "v2.1/train-*.parquet"),),
            },
            questions=open_domain.msmarco_qa,
        ),
        Source(
            name="hotpotqa",
            what="two-hop questions, ten paragraphs each, supporting sentences",
            licence="CC BY-SA 4.0",
            home="https://hotpotqa.github.io/",
            num_questions=97_852, num_passages=510_000, megabytes=360,
            splits=("train", "dev"),
            parts={
                "train": (Hub("hotpotqa/hotpot_qa", "distractor/train-*.parquet", _HOTPOTQA),),
                "dev": (Hub("hotpotqa/hotpot_qa", "distractor/validation-*.parquet", _HOTPOTQA),),
            },
            questions=multihop.hotpotqa,
        ),
        Source(
            name="2wikimultihopqa",
            what="two- to four-hop questions, ten paragraphs each, supporting sentences",
            licence="Apache-2.0; text of Wikipedia, CC BY-SA",
            home="https://github.com/Alab-NII/2wikimultihop",
            num_questions=180_030, num_passages=390_000, megabytes=400,
            splits=("train", "dev"),
            parts={
                split: (Hub("xanhho/2WikiMultihopQA", f"{split}.parquet", _TWO_WIKI),) for split in ("train", "dev")
            },
            questions=multihop.two_wiki,
        ),
        Source(
            name="musique",
            what="MuSiQue-Ans: two- to four-hop questions, twenty paragraphs each",
            licence="CC BY 4.0",
            home="https://github.com/StonyBrookNLP/musique",
            num_questions=22_355, num_passages=140_000, megabytes=271,
            splits=("train", "dev"),
            parts={
                split: (Hub("dgslibisey/MuSiQue", f"musique_ans_v1.0_{split}.jsonl"),) for split in ("train", "dev")
            },
            questions=multihop.musique,
        ),
        Source(
            name="natural-questions",
            what="Google queries; Wikipedia passages of 100 words, found for DPR, as candidates",
            licence="CC BY-SA 3.0 (questions and text); CC BY-NC 4.0 (DPR's selection)",
            home="https://github.com/facebookresearch/DPR",
            num_questions=65_395, num_passages=2_000_000, megabytes=2_571,
            splits=("dev", "train"), num_default_splits=1,
            parts={
                "dev": (Url(f"{_DPR}/biencoder-nq-dev.json.gz", "2640483dbe0df7ae29c6da419c551a80"),),
                "train": (Url(f"{_DPR}/biencoder-nq-train.json.gz", "a1c927b5adae71388eb064329387709f"),),
            },
            questions=open_domain.dpr,
        ),
        Source(
            name="nq_qed",
            what="Google queries with their Wikipedia paragraph, explained by QED",
            licence="CC BY-SA 3.0",
            home="https://github.com/google-research-datasets/QED",
            num_questions=8_060, num_passages=7_500, megabytes=24,
            splits=("train", "dev"),
            parts={split: (Url(f"{_QED}/qed-{split}.jsonlines"),) for split in ("train", "dev")},
            questions=reading.qed,
        ),
        Source(
            name="triviaqa",
            what="trivia questions; Wikipedia passages of 100 words, found for DPR, as candidates",
            licence="Apache-2.0 (questions); CC BY-SA 3.0 (text); CC BY-NC 4.0 (DPR's selection)",
            home="https://github.com/facebookresearch/DPR",
            num_questions=69_250, num_passages=2_000_000, megabytes=2_056,
            splits=("dev", "train"), num_default_splits=1,
            parts={
                "dev": (Url(f"{_DPR}/biencoder-trivia-dev.json.gz", "d559dffe09acfe5a6370adea55b8abf2"),),
                "train": (Url(f"{_DPR}/biencoder-trivia-train.json.gz", "5aa4d3577c91425cd20e239ed89a252b"),),
            },
            questions=open_domain.dpr,
        ),
        Source(
            name="edc2-rag",
            what="questions of WebQuestions and TriviaQA, and passages that help or do not, by DPR's reader",
            licence="MIT (selection); questions CC BY 4.0 and Apache-2.0; text of Wikipedia, CC BY-SA 3.0",
            home="https://github.com/Tsinghua-dhy/EDC-2-RAG",
            num_questions=2_371, num_passages=400_000, megabytes=400,
            splits=("webq", "triviaqa"),
            parts={
                "webq": (Url(f"{_EDC2}/webq/datasets/webq_results_w_negative_passages_full.json"),),
                "triviaqa": (Url(f"{_EDC2}/triviaq/datasets/trivia_results_w_negative_passages_full.json"),),
            },
            questions=open_domain.edc2,
        ),
        Source(
            name="amazon-phones",
            what="products with 4 to 75 reviews each, and a question about each product; no reference answers",
            licence="not given; reviews by customers of Amazon",
            home="https://www.kaggle.com/datasets/nehasontakke/amazon-unlocked-mobilecsv",
            num_questions=300, num_passages=9_000, megabytes=40,
            splits=tuple(reviews.AMAZON_PHONES),
            parts={split: (Url(_PHONES, member="*Amazon_Unlocked_Mobile*.csv"),) for split in reviews.AMAZON_PHONES},
            questions=reviews.amazon_phones,
        ),
        Source(
            name="squad",
            what="SQuAD 1.1: spans of Wikipedia paragraphs as answers",
            licence="CC BY-SA 4.0",
            home="https://rajpurkar.github.io/SQuAD-explorer/",
            num_questions=98_169, num_passages=20_958, megabytes=16,
            splits=("train", "dev"),
            parts={
                "train": (Hub("rajpurkar/squad", "plain_text/train-*.parquet"),),
                "dev": (Hub("rajpurkar/squad", "plain_text/validation-*.parquet"),),
            },
            questions=reading.squad,
        ),
        Source(
            name="policyqa",
            what="questions about websites' privacy policies, answered by spans of their segments",
            licence="MIT",
            home="https://github.com/wasiahmad/PolicyQA",
            num_questions=20_900, num_passages=2_900, megabytes=11,
            splits=("train", "dev"),
            parts={split: (Url(f"{_POLICYQA}/{split}.json"),) for split in ("train", "dev")},
            questions=reading.policyqa,
        ),
        Source(
            name="tatqa",
            what="financial reports, a table and its paragraphs as candidates; questions answered by spans",
            licence="CC BY 4.0",
            home="https://nextplusplus.github.io/TAT-QA/",
            num_questions=8_400, num_passages=13_600, megabytes=15,
            splits=("train", "dev"),
            parts={split: (Url(f"{_TATQA}/tatqa_dataset_{split}.json"),) for split in ("train", "dev")},
            questions=reading.tatqa,
        ),
        Source(
            name="multihop-rag",
            what="questions over several news articles, facts as spans; some have no answer",
            licence="ODC-BY 1.0",
            home="https://huggingface.co/datasets/yixuantt/MultiHopRAG",
            num_questions=2_556, num_passages=609, megabytes=12,
            splits=("test",),
            parts={
                "test": (Hub("yixuantt/MultiHopRAG", "MultiHopRAG.json"),),
                "corpus": (Hub("yixuantt/MultiHopRAG", "corpus.json"),),
            },
            questions=open_domain.multihop_rag, passages=open_domain.multihop_rag_articles,
        ),
        Source(
            name="multihoprag_facts",
            what="the same with the facts as passages",
            licence="ODC-BY 1.0",
            home="https://huggingface.co/datasets/yixuantt/MultiHopRAG",
            num_questions=2_556, num_passages=2_000, megabytes=5,
            splits=("test",),
            parts={"test": (Hub("yixuantt/MultiHopRAG", "MultiHopRAG.json"),)},
            questions=open_domain.multihop_rag_facts,
        ),
        Source(
            name="clapnq",
            what="Google queries with long answers over Wikipedia passages; half have none",
            licence="Apache-2.0; text CC BY-SA 3.0",
            home="https://github.com/primeqa/clapnq",
            num_questions=4_345, num_passages=178_891, megabytes=150,
            splits=("train", "dev"),
            parts={**_clapnq("train"), **_clapnq("dev"), "corpus": (Hub("PrimeQA/clapnq_passages", "passages.tsv"),)},
            questions=reading.clapnq, passages=reading.clapnq_passages,
        ),
        Source(
            name="pubmedqa",
            what="yes/no/maybe questions over abstracts, labelled by experts",
            licence="MIT",
            home="https://pubmedqa.github.io/",
            num_questions=1_000, num_passages=1_000, megabytes=1,
            splits=("train",),
            parts={"train": (Hub("qiaojin/PubMedQA", "pqa_labeled/train-*.parquet"),)},
            questions=reading.pubmedqa,
        ),
        Source(
            name="halueval",
            what="questions with a right and a hallucinated answer",
            licence="MIT; text of HotpotQA, CC BY-SA 4.0",
            home="https://github.com/RUCAIBox/HaluEval",
            num_questions=10_000, num_passages=10_000, megabytes=4,
            splits=("test",),
            parts={"test": (Hub("pminervini/HaluEval", "qa/data-*.parquet", _HALUEVAL),)},
            questions=statements.halueval,
        ),
        Source(
            name="felm",
            what="segments of ChatGPT's responses, true or false; needs another set's corpus",
            licence="CC BY-NC-SA 4.0",
            home="https://github.com/hkust-nlp/felm",
            num_questions=4_425, num_passages=0, megabytes=1,
            splits=("wk", "science", "math", "reasoning", "writing_rec"),
            parts={
                split: (Hub("hkust-nlp/felm", f"{split}/test/*.parquet", "refs/convert/parquet"),)
                for split in ("wk", "science", "math", "reasoning", "writing_rec")
            },
            questions=statements.felm, own_passages=False, num_default_splits=1,
        ),
        Source(
            name="wikibio",
            what="sentences of GPT-3's biographies, true or false, beside Wikipedia's",
            licence="CC BY-SA 3.0",
            home="https://huggingface.co/datasets/potsawee/wiki_bio_gpt3_hallucination",
            num_questions=1_908, num_passages=238, megabytes=1,
            splits=("test",),
            parts={"test": (Hub("potsawee/wiki_bio_gpt3_hallucination", "data/evaluation-*.parquet", _WIKIBIO),)},
            questions=statements.wikibio,
        ),
        Source(
            name="helmet-rag",
            what="HELMET's RAG part: up to 1,000 passages a question (128k tokens)",
            licence="none given; questions and text of NQ, TriviaQA, HotpotQA and PopQA",
            home="https://github.com/princeton-nlp/HELMET",
            num_questions=2_500, num_passages=2_000_000, megabytes=11_300,
            splits=("nq", "triviaqa", "hotpotqa", "popqa"),
            parts={
                "nq": _helmet("nq-dev-multikilt_1000_k1000_dep6"),
                "triviaqa": _helmet("triviaqa-dev-multikilt_1000_k1000_dep6"),
                "hotpotqa": _helmet("hotpotqa-dev-multikilt_1000_k1000_dep3"),
                "popqa": _helmet("popqa_test_1000_k1000_dep6"),
            },
            questions=long_context.helmet,
        ),
        Source(
            name="holobench",
            what="questions over rows of a database told as sentences, 100k tokens each",
            licence="CC BY-SA 4.0",
            home="https://github.com/megagonlabs/holobench",
            num_questions=360, num_passages=20_000, megabytes=60,
            splits=tuple(long_context.HOLOBENCH_AMOUNTS),
            parts={
                part: (Hub("megagonlabs/holobench", pattern),)
                for name in long_context.HOLOBENCH_DATABASES
                for part, pattern in ((name, f"{name}/*.csv"), (f"queries-{name}", f"query/{name}.csv"))
            },
            questions=long_context.holobench,
        ),
    )
}  # fmt: skip
"""The sets by name. Sizes are those that the sources give, or estimates."""


def find_source(name: str) -> Source:
    """Return the source of a name: one of `SOURCES`, `ir_datasets:NAME`, or `beir:NAME`.

    Raises:
        InputError: There is none of that name; the message lists all.
    """
    if name in SOURCES:
        return SOURCES[name]
    family, _, rest = name.partition(":")
    if family == "ir_datasets" and rest:
        return ir_source(name, rest)
    if family == "beir" and rest:
        return ir_source(name, f"beir/{rest}", licence="that of the set; see https://github.com/beir-cellar/beir")
    similar = get_close_matches(name, SOURCES, 1)
    meant = f"; did you mean {similar[0]!r}?" if similar else ""
    raise InputError(
        f"there is no data set {name!r}{meant} The sets are {', '.join(SOURCES)}, ir_datasets:NAME and beir:NAME"
    )
