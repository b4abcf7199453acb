"""Runs in Weights & Biases: settings, metrics, tables, reports and checkpoints. No work fails because of W&B."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from corag.models.runtime import PLACEMENT_SETTINGS
from corag.optional import warn_once
from experiments.run.journal import commit, versions

if TYPE_CHECKING:
    from lightning.pytorch.loggers import WandbLogger

logger = logging.getLogger(__name__)

Tracker = Literal["wandb", "none"]
PROJECTS = {
    "train": "corag-agent", "label": "corag-labels", "evaluate": "corag-evaluate", "reproduce": "corag-papers",
}  # fmt: skip
SERVER = "https://api.wandb.ai"
ID_FILE = "wandb-run-id"


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Commands that log to W&B inherit this.

    Attributes:
        logger: Where settings and metrics are logged besides the results: `wandb` (offline without a login, or as
            WANDB_MODE says) or `none`. W&B's own variables, such as WANDB_PROJECT, set the rest.
    """

    logger: Tracker = "none"

    def measured_settings(self, *others: str) -> dict[str, Any]:
        """Return the settings that results depend on, but for rounding, as JSON gives them back, without `others`."""
        left_out = ("logger", "out", "quiet", *PLACEMENT_SETTINGS, *others)
        return {name: value for name, value in json.loads(json.dumps(asdict(self))).items() if name not in left_out}


@dataclass
class TrackedRun(AbstractContextManager["TrackedRun"]):
    """A run in W&B, from `start` to the end of the block. Without `logger=wandb` it logs nothing.

    Whatever W&B raises becomes a warning, and the work goes on.

    Attributes:
        command: One of `PROJECTS`; the run's job type.
        config: Settings of the command.
        folder: Where W&B writes, and the run's name by default.
        settings: What the run was made with, nested as in YAML; versions and commit are added.
        name: Name of the run.
        group: Group of a run, if WANDB_RUN_GROUP names none.
    """

    command: str
    config: Tracking
    folder: Path
    settings: Mapping[str, Any]
    name: str | None = None
    group: str | None = None
    _logger: "WandbLogger | None" = None

    def start(self, state: Path | None = None) -> "WandbLogger | None":
        """Start the run and return Lightning's logger; None if there is none.

        `state` is the folder of an unfinished training. The run's id is kept there, and a resumed training goes on as
        the same run.
        """
        if self.config.logger != "none":
            with _tolerated("start"):
                self._logger = self._started(state)
        return self._logger

    def _started(self, state: Path | None) -> "WandbLogger":
        # W&B reports how it is used and what fails, offline or not, unless this was set when it is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb
        from lightning.pytorch.loggers import WandbLogger

        # The variables are read here, because W&B reads them once for a process, whose runs may differ in them.
        env = os.environ.get
        kept = None if state is None else state / ID_FILE
        known = kept.read_text(encoding="utf-8").strip() if kept is not None and kept.is_file() else None
        self.folder.mkdir(parents=True, exist_ok=True)
        # Not through Lightning's `offline=True`, which would change the mode of the whole process.
        run = wandb.init(
            project=env("WANDB_PROJECT") or PROJECTS[self.command],
            group=env("WANDB_RUN_GROUP") or self.group,
            job_type=self.command,
            name=self.name or self.folder.resolve().name,
            id=env("WANDB_RUN_ID") or known,  # the agent of a W&B sweep has chosen it already
            dir=self.folder.absolute(),  # W&B's own process may have been started in another folder
            config={**self.settings, "versions": versions("lightning", "wandb"), "commit": commit()},
            resume="allow",
            mode=_mode(),
            settings=wandb.Settings(silent=True, console="off"),
        )
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(run.id, encoding="utf-8")
        run.define_metric("trainer/global_step")
        run.define_metric("*", step_metric="trainer/global_step", step_sync=True)

        class Tolerant(WandbLogger):  # type: ignore[misc]
            """Lightning logs the metrics of a training through it."""

            def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
                with _tolerated("log metrics"):
                    super().log_metrics(metrics, step)

        return Tolerant(experiment=run, save_dir=self.folder)

    def log_metrics(self, values: Mapping[str, float]) -> None:
        """Log metrics."""
        if self._logger is not None:
            self._logger.log_metrics(dict(values))

    def log_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table."""
        self._give(name, lambda run, wandb: run.log({name: wandb.Table(list(columns), [list(row) for row in rows])}))

    def log_html(self, name: str, html: str) -> None:
        """Log a page or a figure."""
        self._give(name, lambda run, wandb: run.log({name: wandb.Html(html, inject=False)}))

    def log_checkpoint(self, folder: Path, metadata: Mapping[str, Any]) -> None:
        """Log a folder as the run's model."""

        def log(run: Any, wandb: Any) -> None:
            artifact = wandb.Artifact(f"checkpoint-{run.id}", type="model", metadata=dict(metadata))
            # `add_dir` prints, whatever the settings.
            for file in sorted(folder.iterdir()):
                artifact.add_file(str(file))
            run.log_artifact(artifact)

        self._give("the checkpoint", log)

    def _give(self, what: str, log: Callable[[Any, Any], object]) -> None:
        """Let a function log something, given the run and the library; nothing if there is no run."""
        if self._logger is not None:
            import wandb

            with _tolerated(f"log {what}"):
                log(self._logger.experiment, wandb)

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if self._logger is not None:
            with _tolerated("end"):
                run = self._logger.experiment
                offline, folder = bool(run.offline), Path(run.dir).parent
                run.finish(exit_code=0 if failed is None else 1)
                if offline:
                    logger.info("the W&B run is on this machine alone; send it with: wandb sync %s", folder)


@contextmanager
def _tolerated(what: str) -> Iterator[None]:
    """Turn whatever W&B raises into a warning: it documents no closed set of errors, and the work matters more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        warn_once(f"W&B could not {what} ({error}); the work goes on without it")


def _mode() -> Any:
    """Return WANDB_MODE, else `online` if this user is logged in (WANDB_API_KEY, or netrc), else `offline`."""
    from requests.utils import get_netrc_auth

    env = os.environ.get
    login = env("WANDB_API_KEY") or get_netrc_auth(env("WANDB_BASE_URL") or SERVER)
    return env("WANDB_MODE") or ("online" if login else "offline")


def log_run(
    command: str,
    config: Tracking,
    out: Path,
    name: str,
    settings: Mapping[str, Any],
    rows: Mapping[str, Mapping[str, Any]],
    *,
    group: str | None = None,
    pages: Mapping[str, str] | None = None,
) -> None:
    """Log a finished result as one run; W&B's files are in `<out>.log/<name>`.

    `rows` are the figures of each method or configuration: a table `results`, and each number as `<method>/<figure>`.
    `pages` are HTML or SVG by name. The other arguments are those of `TrackedRun`.
    """
    folder = out.with_suffix(".log") / name.replace("/", "-")
    with TrackedRun(command, config, folder, settings, name=name, group=group) as run:
        if run.start() is None:
            return
        numbers = {
            method: {
                figure: float(value)
                for figure, value in row.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
            for method, row in rows.items()
        }
        columns = list(dict.fromkeys(figure for row in numbers.values() for figure in row))
        run.log_metrics({f"{of}/{figure}": value for of, row in numbers.items() for figure, value in row.items()})
        lines = [[method, *map(row.get, columns)] for method, row in numbers.items()]
        run.log_table("results", ["method", *columns], lines)
        for title, html in (pages or {}).items():
            run.log_html(title, html)
