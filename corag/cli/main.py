"""The command line `corag`: typed dataclasses are the one source of flags, YAML (`--config`) and help.

This module is the one door through which the library reaches up to `experiments`, inside its functions.
A mistake of the user prints one line and exits with status 2; `--debug` before the command shows the traceback.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from rich.logging import RichHandler
from rich.markup import escape

from corag.cli.console import progress, say, stderr
from corag.errors import CoragError, InputError
from corag.index.search import Retrieval

MISTAKE = 2
"""Exit status when the user can mend what went wrong."""
INTERRUPTED = 130


@dataclass(frozen=True)
class AskConfig:
    """Answer one question from an index, under a token budget.

    Attributes:
        question: The question.
        index: Where `corag index` put the index.
        budget: The most tokens of the context.
        method: Selector.
        agent: Checkpoint folder; method `corag` then takes reranker and settings from it. `default`: the one that ships
            with the project, where it can be used and neither reranker nor prefilter is given; `none`: fixed settings.
        strict: An error where the agent, or a reranker that it names, cannot be used here, instead of the next best.
        reranker: Values chunks, for methods that rerank, in place of the one that an agent names.
        window: What becomes of orders that are longer than the reranker's window, for methods that rerank: they are no
            candidates (forbid), are scored in overlapping windows (windows), or are cut (truncate).
        prefilter: Below 1, a surrogate ranks orders first, and method `corag` asks the reranker about this share only.
        num_candidates: Chunks that the index offers.
        retrieval: How the index finds them: by cosine similarity (vector), by the words that they share with the
            question (text, BM25), or by both rankings joined (hybrid).
        reader: Answers from the context.
        model: Model of reader `ollama` or `transformers`.
        host: Server of reader `ollama`.
        tokenizer: Counts tokens as the answering model does: minilm, estimate, or a tokenizer.json.
        embedder: Embeds the question; by default the one that made the index.
        json: Print JSON for machines.
    """

    question: str
    index: str = "runs/index"
    budget: int = 256
    method: str = "corag"
    agent: str = "default"
    strict: bool = False
    reranker: str | None = None
    window: str | None = None
    prefilter: float | None = None
    num_candidates: int = 20
    retrieval: Retrieval = "vector"
    reader: str = "minilm-reader"
    model: str | None = None
    host: str | None = None
    tokenizer: str = "minilm"
    embedder: str | None = None
    json: bool = False


@dataclass(frozen=True)
class IndexConfig:
    """Cut the corpus of a data folder into chunks and index them; goes on where an interrupted run stopped.

    Attributes:
        data: Data folder with corpus.jsonl[.gz].
        out: Where to put the index: a local folder, or an object-storage URI (s3://, gs://, az://).
        max_tokens: The most tokens of a chunk, its title included; 128, 256, 512 and 1024 are usual.
        overlap_tokens: About how many tokens of a chunk's end stand again at the start of the next.
        embedder: Embeds the chunks.
        tokenizer: Counts tokens as the answering model does: minilm, estimate, or a tokenizer.json.
        batch_size: Chunks embedded and stored at a time.
        overwrite: Replace another index that is there.
        quiet: No progress.
    """

    data: str
    out: str = "runs/index"
    max_tokens: int = 256
    overlap_tokens: int = 0
    embedder: str = "minilm"
    tokenizer: str = "minilm"
    batch_size: int = 256
    overwrite: bool = False
    quiet: bool = False


def run_ask(config: AskConfig) -> None:
    """Answer one question."""
    import corag
    from corag.cli.show import show_reply
    from corag.index import ChunkIndex
    from corag.reply import ask
    from corag.selectors.base import check_budget, check_query
    from corag.selectors.corag.agents import DEFAULT_AGENT, NO_AGENT
    from corag.text.tokens import token_counter

    check_query(config.question)
    check_budget(config.budget)
    index = ChunkIndex.open(config.index)
    embedder = corag.embedder(config.embedder or index.embedder_name)
    if config.embedder is not None:
        index = ChunkIndex.open(config.index, embedder)
    settings: dict[str, Any] = {"tokens": token_counter(config.tokenizer)}
    if config.method in ("corag", "corag-fixed"):
        settings["agent"] = config.agent
    elif config.agent not in (DEFAULT_AGENT, NO_AGENT):
        raise InputError(
            f"method {config.method!r} does not use an agent; leave out --agent, or use method corag or corag-fixed"
        )
    if config.strict:
        settings["strict"] = True
    if config.reranker is not None:
        settings["reranker"] = config.reranker
    if config.window is not None:
        settings["window"] = config.window
    if config.prefilter is not None:
        settings["prefilter"] = config.prefilter
    reading = {name: value for name, value in (("model", config.model), ("host", config.host)) if value is not None}
    reply = ask(
        config.question,
        index,
        embedder,
        corag.selector(config.method, **settings),
        corag.reader(config.reader, **reading),
        budget_tokens=config.budget,
        num_candidates=config.num_candidates,
        retrieval=config.retrieval,
    )
    if config.json:
        sys.stdout.write(json.dumps(reply.to_dict(), ensure_ascii=False, indent=2) + "\n")
    else:
        show_reply(reply)


def run_index(config: IndexConfig) -> None:
    """Index a corpus."""
    import corag
    from corag.index import build_index
    from corag.text.chunking import ChunkConfig
    from corag.text.tokens import token_counter

    chunking = ChunkConfig(config.max_tokens, config.overlap_tokens)
    with progress("index", quiet=config.quiet) as report:
        index = build_index(
            config.data,
            config.out,
            corag.embedder(config.embedder),
            chunking,
            tokens=token_counter(config.tokenizer),
            overwrite=config.overwrite,
            batch_size=config.batch_size,
            report=report,
        )
    say(f"{len(index)} chunks in {config.out}; ask it with: corag ask 'your question' --index {config.out}")


def run_label(config: Any) -> None:
    """Measure every configuration on every question."""
    from experiments.labels.label import label, read_table

    path = label(config)
    if config.shard and not path.exists():
        say(f"shard {config.shard} is done; whoever does the last one writes {path}")
        return
    rows, metadata = read_table(path)
    tokens = metadata["tokens"]
    say(
        f"{tokens['spent']:,} tokens read by models for {tokens['configurations']:,} configurations, "
        f"{tokens['alone_ratio']:.0f} times fewer than by searching each from scratch, "
        f"{tokens['brute_force_ratio']:.0f} times fewer than by reading every scored order as one text"
    )
    say(f"{len(rows)} rows in {path}; train an agent with: corag train --labels {path} --out runs/agent")


def run_train(config: Any) -> None:
    """Train an agent."""
    from experiments.agents.train import train

    report = train(config)
    best = report.history[report.best_epoch]
    figures = ", ".join(f"{name} {value:.4f}" for name, value in best.items())
    say(f"best epoch {report.best_epoch + 1} of {len(report.history)}: {figures}")
    say(f"checkpoint in {report.checkpoint}; use it with: corag ask 'your question' --agent {report.checkpoint}")


def run_evaluate_agent(config: Any) -> None:
    """Compare the agent with what it has to beat."""
    from experiments.agents.evaluate import evaluate_agent

    evaluate_agent(config)
    say(f"written to {config.out}", stderr())


def run_sweep(config: Any) -> None:
    """Train with every combination of some settings."""
    from experiments.agents.sweep import MARKDOWN_FILE, SUMMARY_FILE, sweep, write_wandb_sweep

    if config.wandb_sweep is not None:
        say(f"W&B sweep in {(path := write_wandb_sweep(config))}; start it with: wandb sweep {path}")
        return
    sweep(config)
    say(f"summary in {config.base.out}: {SUMMARY_FILE} and {MARKDOWN_FILE}")


def run_train_adapter(config: Any) -> None:
    """Train an adapter."""
    from experiments.adapters.train import train_adapter

    adapter = train_adapter(config)
    say(f"adapter in {adapter}; its README.md says what it achieves")


def run_evaluate(config: Any) -> None:
    """Compare selectors."""
    from experiments.evaluation.evaluate import evaluate
    from experiments.run.tables import show

    result = evaluate(config)
    if not config.quiet:
        title = f"{config.data}, {config.split}: {result['queries']} questions, {config.budget} tokens"
        show(result, title)
    if config.out is not None:
        say(f"written to {config.out}", stderr())


def run_demo(config: Any) -> None:
    """Run the whole job on the demo corpus."""
    from experiments.demo.run import demo

    demo(config)


def run_report(config: Any) -> None:
    """Draw a report."""
    from experiments.run.report import report

    say(f"report in {report(config)}")


def run_bench(config: Any) -> None:
    """Measure speed."""
    from experiments.bench.run import bench

    bench(config)


def commands() -> dict[str, tuple[type, Callable[[Any], None]]]:
    """Return every command: its settings and what it does."""
    from experiments.adapters.train import TrainAdapterConfig
    from experiments.agents.evaluate import EvaluateAgentConfig
    from experiments.agents.sweep import SweepConfig
    from experiments.agents.train import TrainAgentConfig
    from experiments.bench.run import BenchConfig
    from experiments.demo.run import DemoConfig
    from experiments.evaluation.evaluate import EvaluateConfig
    from experiments.labels.label import LabelConfig
    from experiments.run.report import ReportConfig

    return {
        "demo": (DemoConfig, run_demo),
        "index": (IndexConfig, run_index),
        "ask": (AskConfig, run_ask),
        "label": (LabelConfig, run_label),
        "train": (TrainAgentConfig, run_train),
        "sweep": (SweepConfig, run_sweep),
        "train-adapter": (TrainAdapterConfig, run_train_adapter),
        "evaluate": (EvaluateConfig, run_evaluate),
        "evaluate-agent": (EvaluateAgentConfig, run_evaluate_agent),
        "report": (ReportConfig, run_report),
        "bench": (BenchConfig, run_bench),
    }


def make_parser() -> Any:
    """Return the parser, with one subcommand per entry of `commands`."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="corag",
        exit_on_error=False,
        description="Which chunks go into the prompt, how many, and in which order, under a token budget.",
        version=_version(),
    )
    parser.add_argument("--debug", action="store_true", help="Show tracebacks and debug messages.")
    subcommands = parser.add_subcommands(required=True, dest="command")
    for name, (settings, _) in commands().items():
        own = ArgumentParser(description=(settings.__doc__ or "").split("\n", 1)[0], exit_on_error=False)
        own.add_argument("--config", action="config", help="YAML file with settings.")
        own.add_class_arguments(settings, as_positional=name in ("ask", "bench"))
        subcommands.add_subcommand(name, own)
    return parser


def _version() -> str:
    from corag import __version__

    return __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = arguments[:1] == ["--debug"]
    _configure_logging(debug)
    try:
        parser = make_parser()
        parsed = parser.parse_args(_spelt_out(arguments))
        debug = debug or parsed.debug
        settings_type, run = commands()[parsed.command]
        values = parser.instantiate(parsed)[parsed.command]
        values.pop("config", None)
        run(settings_type(**vars(values)))
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here", stderr())
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MISTAKE
    except (CoragError, argparse.ArgumentError, OSError) as error:
        if debug:
            raise
        stderr().print(f"[bold red]error:[/] {escape(_message(error))}", soft_wrap=True)
        return MISTAKE
    return 0


def _spelt_out(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as the parser knows them.

    `true` is put after each switch that stands alone, as in `--json`; `--num-candidates` is `--num_candidates`.
    """
    arguments = [_with_underscores(argument) if argument.startswith("--") else argument for argument in arguments]
    switches = {f"--{name}" for settings, _ in commands().values() for name in _switches(settings)}
    spelt_out = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        alone = argument in switches and following.lower() not in ("true", "false")
        spelt_out += [argument, "true"] if alone else [argument]
    return spelt_out


def _with_underscores(flag: str) -> str:
    name, equals, value = flag.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _switches(settings_type: type) -> Iterator[str]:
    for name, hint in get_type_hints(settings_type).items():
        if hint is bool:
            yield name
        elif dataclasses.is_dataclass(hint):
            yield from (f"{name}.{inner}" for inner in _switches(cast(type, hint)))


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, CoragError):
        return f"{error}; check the path, its permissions and the free space"
    if isinstance(error, argparse.ArgumentError):
        return f"{' '.join(str(error).split()).rstrip('.')}; see corag --help, or corag COMMAND --help"
    return str(error)


def _configure_logging(debug: bool) -> None:
    handler = RichHandler(console=stderr(), show_time=False, show_path=debug, markup=False)
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("corag").setLevel(logging.DEBUG if debug else logging.INFO)
    logging.getLogger("experiments").setLevel(logging.DEBUG if debug else logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
