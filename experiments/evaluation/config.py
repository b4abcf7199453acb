"""The settings of `corag evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from common.checks import check_budget, check_choice, check_count
from common.configuration import parse, split_parts
from corag.errors import InputError
from corag.registry import SELECTORS
from corag.selectors.corag.agents import NO_AGENT
from experiments.data.config import CandidateSettings, Part, SelectionSettings, left_open, spell_out
from experiments.evaluation.judge import GRADE, judgements
from experiments.run.track import Tracking

NO_READER = "none"
ALL = "all"
"""Every registered selector that can run."""
FOR_METHODS = ("reranker", "agent", "summarizer")
"""What is set for every method that takes it."""


@dataclass(frozen=True)
class QuestionSet(CandidateSettings):
    """Questions of one data folder.

    Attributes:
        name: Name in tables and files.
        data: Data folder: below that of the comparison, or by name.
        split: Split of the questions; by default that for all.
        part: All of them, or the share that the shipped adapters have not learned from (held-out).
        reranker: Reranker of every method that uses one, in place of their default.
    """

    name: str
    data: str
    split: str = ""
    part: Part = "all"
    reranker: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise InputError(f"a set is called {self.name!r}; its name is part of file names: use letters and digits")


@dataclass(frozen=True)
class EvaluateConfig(SelectionSettings, Tracking):
    """Compare methods on data folders; an interrupted comparison resumes.

    One data folder at one budget gives one result. With sets or budgets, `out` is a folder with the result of
    each set at each budget, and `comparison.html` and `comparison.md` over all. With `--reader none` nothing is read,
    and only selections are measured.

    Attributes:
        data: Data folder, by path or name; with sets, their parent folder, or empty to look up each by name.
        split: Split of the questions; in a BEIR folder the name of a file in `qrels`. By default `dev`, or `test` if
            there is no `dev`, or the only one.
        part: All of them, or the share that the shipped adapters have not learned from (held-out).
        methods: Selectors, separated by commas, with settings if needed: `top-k(k=3)`, `car(method=dbscan)`. `all`
            means every selector that can run with the given settings.
        reranker: Reranker of every method that uses one, in place of their default.
        agent: Agent that predicts the configuration of `corag` for each question: a checkpoint folder. By
            default `none`: the best single configuration holds.
        summarizer: Summarizer of methods that put summaries into the prompt.
        judge: Reader whose language model judges answers and contexts, such as `ollama(model=llama3.1:8b)`; by default
            none.
        judge_figures: What it judges, separated by commas: grade and mention (against the reference answers),
            answer_relevancy, contextual_relevancy, faithfulness, hallucination, verdict (of `halueval`, `felm` and
            `wikibio`: which of a right and a wrong answer is right, or whether a statement is true, by the context
            alone); or all.
        seed: Seed of the sample.
        measures: Measures of the candidates' ranking and of each selection's order, by their names in ir-measures,
            separated by commas; empty for none. Questions without gold are left out.
        out: File for the result as JSON; also writes one line per question (`.rows.jsonl`) and TREC runs (`.runs`).
        sets: Questions of several data folders; what one of them leaves open is as given for all.
        budgets: Several budgets instead of one.
        curves: Whether the report draws quality against tokens.
        look: Why sealed questions are looked at, in a few words: they are measured in place of those of `split`, and
            the look is registered; see `experiments.protocol.held_out`.
        latency_questions: Questions of each set on which selections are timed, once all else is measured: cold, with
            empty caches, and warm, the same question again. `null` times all questions, 0 none.
    """

    data: str = ""
    split: str = ""
    methods: str | tuple[str, ...] = "top-k,naive,corag,upper"
    reranker: str | None = None
    agent: str = NO_AGENT
    summarizer: str = "extractive"
    judge: str | None = None
    judge_figures: str = GRADE
    seed: int = 0
    measures: str = "nDCG@10,RR@10,R@20"
    part: Part = "all"
    out: str | None = None
    sets: tuple[QuestionSet, ...] = ()
    budgets: tuple[int, ...] = ()
    curves: bool = True
    look: str = ""
    latency_questions: int | None = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logger != "none" and self.out is None:
            raise InputError(f"logger {self.logger!r} writes beside the result; give --out with it")
        spell_out(self, "reranker", "summarizer", "judge")
        object.__setattr__(self, "methods", tuple(split_parts(self.methods)) or self.methods)
        names = [one.name for one in self.sets]
        if not self.data and not names:
            raise InputError("data is empty; give a data folder with --data, by path or name")
        for budget in self.budgets:
            check_budget(budget, "budgets")
        for name, given in (("names of sets", names), ("budgets", self.budgets)):
            if len(set(given)) < len(given):
                raise InputError(f"the {name} are {', '.join(map(str, given))}; give each once")
        check_choice("part", self.part, Part)
        if self.judge is None and judgements(self.judge_figures) != judgements(GRADE):
            raise InputError(f"judge_figures is {self.judge_figures!r}, but there is no judge; give one with --judge")
        check_count("seed", self.seed, "typical: 0", least=0)
        if self.latency_questions is not None:
            check_count("latency_questions", self.latency_questions, "typical: 20", least=0)
        if self.index is not None and len({one.data for one in self.sets}) > 1:
            raise InputError(f"index {self.index!r} is of one corpus; compare sets of other data folders without it")
        if self.run is not None and self.sets:
            raise InputError(f"run {self.run!r} belongs to one data folder; give each of the sets its own run")

    def check_used(self) -> None:
        """Raise `InputError` for a reranker, agent and the like that no method takes, or each has set by itself."""
        named = [name for text in split_parts(self.methods) for name in (SELECTORS.names if text == ALL else [text])]
        open_ = {setting for one in named for setting in set(SELECTORS.parameters(one)) - parse(one).settings.keys()}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in FOR_METHODS and value not in (one.default, NO_AGENT) and one.name not in open_:
                takers = [name for name in SELECTORS.names if one.name in SELECTORS.parameters(name)]
                raise InputError(
                    f"{one.name} is {value!r}, but none of the methods {', '.join(named)} takes it; leave it out, or "
                    f"add one that does, such as {takers[0]}"
                )

    @property
    def several(self) -> bool:
        """Whether `out` is a folder for several results."""
        return bool(self.sets or self.budgets)

    def by_set(self) -> dict[str, EvaluateConfig]:
        """Return for each set of questions to measure, by name, the settings that measure it alone."""
        root = Path(self.data)
        if not self.sets:
            return {root.resolve().name: self}
        runs = {}
        for one in self.sets:
            given = {setting.name: getattr(one, setting.name) for setting in fields(one) if setting.name != "name"}
            given |= {**left_open(one, self), "sets": (), "data": str(root / one.data)}
            runs[one.name] = replace(self, **given)
        return runs
