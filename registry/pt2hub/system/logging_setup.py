"""Logging of server processes: one JSON object per line on standard error."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING

import structlog

from pt2hub.system import redaction

if TYPE_CHECKING:
    from types import TracebackType

    from structlog.typing import Processor

_OURS = ("pt2hub", "pt2hub_workers")
_log = structlog.get_logger(__name__)


def configure() -> None:
    """Send everything logged, warned or raised in this process to standard error as JSON lines.

    What libraries log is kept from warnings on; at level `debug` from `info` on. A wrong `PT2HUB_LOG_LEVEL` counts
    as unset here: `ServerConfig` refuses it.
    """
    level, secrets = _level(), redaction.Redactor(redaction.known_secrets(os.environ))
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redaction.processor(secrets),  # after exceptions were written out: they may hold some too
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if level == logging.DEBUG else max(level, logging.WARNING))
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=True)
    sys.excepthook = _on_error
    threading.excepthook = _raised_in_thread


def _level() -> int:
    name = os.environ.get("PT2HUB_LOG_LEVEL", "").strip().upper()
    return logging.getLevelNamesMapping().get(name, logging.INFO)


def _on_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log.critical("the process ends with an exception", exc_info=(kind, error, trace))


def _raised_in_thread(args: threading.ExceptHookArgs) -> None:
    if not issubclass(args.exc_type, SystemExit):
        name = args.thread.name if args.thread else None
        found = (args.exc_type, args.exc_value, args.exc_traceback)
        _log.critical("a thread ends with an exception", thread=name, exc_info=found)
