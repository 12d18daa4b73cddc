"""The `pt2hub` command line. Commands import their dependencies when they run, which keeps `--help` fast."""

from __future__ import annotations

import functools
import io
import os
import sys
import warnings
from typing import TYPE_CHECKING, Annotated

import click
import typer
from click.exceptions import NoArgsIsHelpError
from typer.main import get_command

from pt2hub.cli import lists, output, panels, web_page
from pt2hub.cli.access import login, settings, tokens
from pt2hub.cli.artifacts import diff, exports, hosts, kernels, lock, lock_views, pull, show
from pt2hub.cli.blobs import cache
from pt2hub.cli.builds import build, control, logs, wait
from pt2hub.cli.operations import admin, completion, doctor, server, webhooks, worker
from pt2hub.cli.performance import comparisons, evaluations, history, measuring_jobs, reports
from pt2hub.cli.promotion import aliases, policies, yanks
from pt2hub.cli.publishing import description, files, labels, lineage, publish, specs
from pt2hub.cli.retention import deletion
from pt2hub.cli.retention import policies as retention_policies
from pt2hub.errors import Pt2hubError, UsageError
from pt2hub.extras import lacking
from pt2hub.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="pt2hub",
    help="Publish a PyTorch model once, pull verified AOTInductor artifacts.",
    no_args_is_help=True,
    add_completion=False,
    suggest_commands=False,  # click suggests too, and the sentence would stand there twice
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
panels.add(
    app,
    publish.publish,
    wait.wait,
    build.build,
    control.cancel,
    control.retry,
    measuring_jobs.measure,
    policies.policy,
    yanks.yank,
    yanks.unyank,
    deletion.delete,
    description.describe,
    lists.models,
    lists.versions,
    lists.builds,
    lists.workers,
    lists.usage,
    lists.targets,
    history.history,
    comparisons.compare,
    comparisons.changes,
    evaluations.evaluations,
    reports.report,
    show.show,
    diff.diff,
    kernels.kernels,
    web_page.open_page,
    logs.logs,
    hosts.check,
    pull.pull,
    pull.run,
    lock.lock,
    lock.sync,
    lock_views.verify,
    lock_views.tree,
    hosts.host,
    server.up,
    server.api,
    server.demo,
    worker.worker,
    login.login,
    login.logout,
    login.whoami,
    doctor.doctor,
    completion.completion,
)
aliases.register(app)
retention_policies.register(app)
exports.register(app)
labels.register(app)
lineage.register(app)
specs.register(app)
files.register(app)
settings.register(app)
tokens.register(app)
webhooks.register(app)
admin.register(app)
cache.register(app)

_FAILED = 1
_WRONG_USAGE = 2


def _version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Publish a PyTorch model once, pull verified AOTInductor artifacts."""


def main() -> None:
    """Run the command line of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # as on stderr: a name that the terminal cannot show is not a failure
    warnings.showwarning = output.show_warning
    if completion.VARIABLE in os.environ:
        completion.prepare()
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command.

    Returns:
        0 on success, 1 on failure, 2 on wrong usage, 130 after Ctrl-C.
    """
    output.choose_json("--json" in args)  # until the command line is parsed
    output.choose_quiet(False)
    try:
        return int(command_tree()(args=list(args), prog_name="pt2hub", standalone_mode=False) or 0)
    except click.ClickException as exc:
        _explain_usage(exc)
        return _WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return output.report_interrupt()
    except BrokenPipeError:  # the reader of the pipe is gone, for example head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except ModuleNotFoundError as exc:
        output.complain(_missing(exc))
    except UnicodeEncodeError as exc:
        output.complain(output.unencodable(exc))
    except Pt2hubError as exc:
        output.complain(exc)
    except Exception as exc:  # noqa: BLE001  # last resort: users get a message, not a traceback
        output.complain(output.unforeseen(exc))
    return _FAILED


@functools.cache
def command_tree() -> click.Command:
    """Return all commands: to build them takes longer than most commands in a process that runs several."""
    return get_command(app)


def _missing(exc: ModuleNotFoundError) -> Pt2hubError:
    name = (exc.name or "").partition(".")[0]
    if name == "pt2hub":
        return output.unforeseen(exc)
    return lacking("This command", [name])


def _explain_usage(exc: click.ClickException) -> None:
    """Print wrong usage in the style of all errors."""
    if isinstance(exc, NoArgsIsHelpError):  # making it has printed the help
        return
    context = exc.ctx if isinstance(exc, click.UsageError) else None
    usage = f"{context.get_usage().strip()}. " if context else ""
    command = context.command_path if context else "pt2hub"
    output.complain(UsageError(exc.format_message(), hint=f"{usage}See {command} --help."))
