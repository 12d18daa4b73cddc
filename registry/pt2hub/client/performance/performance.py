"""Performance of artifacts: measuring jobs, histories, comparisons and reports."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from pt2hub.client.http.paths import model_path
from pt2hub.client.resources import Resource
from pt2hub.domain.digests import canonical_json
from pt2hub.domain.names import Reference
from pt2hub.wire.evaluations import EvaluationPage
from pt2hub.wire.performance import ComparisonView, EventPage, HistoryView, MeasuringJobs, SeriesList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from pt2hub.domain.artifacts import Environment
    from pt2hub.wire.evaluations import EvaluationView
    from pt2hub.wire.performance import EventView, Reported
    from pt2hub.wire.responses import BuildView


class HistoryOptions(TypedDict, total=False):
    """Filter of a metric's measurements. An omitted field does not filter, except `implementation`.

    Attributes:
        implementation: `artifact` if omitted, or a baseline: `eager` or `torch_compile`.
        environment: In this environment class: `class_digest` of a series, or its beginning.
        before: Of versions below this number; the newest where left out.
        limit: At most so many versions of each series; 200 where left out, 1,000 at most.
    """

    target: str | None
    batch: int | None
    implementation: str | None
    environment: str | None
    before: int | None
    limit: int | None


class Performance(Resource):
    """Measurements of artifacts, their histories and comparisons."""

    def measure(
        self,
        reference: str,
        target: str | None = None,
        repeat: int = 1,
        *,
        priority: int | None = None,
        baseline: str | None = None,
    ) -> list[BuildView]:
        """Queue measuring jobs for artifacts, each on a worker for its target.

            client.performance.measure("vision/resnet18@12", baseline="vision/resnet18@prod")

        If a job for the same artifact is queued, it makes the greater number of runs, at the higher priority.

        Args:
            reference: As for `load`.
            target: Only the artifact for this target.
            repeat: Number of runs, 1 to 20, each in fresh processes.
            priority: Higher runs first; after all builds if omitted.
            baseline: A reference of the same team: its artifact for the same target is timed in the same processes, and
                `compare` then rests on that. The version before where omitted.

        Returns:
            The queued jobs, one of each artifact; `client.builds.follow` waits for them.

        Raises:
            InvalidInput: `baseline` is of another team or the same artifact.
            NotFound: A version does not exist or has no artifact for the target.
            NotReady: The version has no artifact yet.
            Unauthorized: The token is missing or wrong.
        """
        order = {"reference": reference, "target": target, "repeat": repeat}
        order |= {"priority": priority, "baseline": baseline}
        body = canonical_json({name: value for name, value in order.items() if value is not None})
        return list(self._transport.ask(MeasuringJobs, "POST", "/api/v1/measure", body).builds)

    def history(
        self, reference: str, metric: str = "latency_p50", **options: Unpack[HistoryOptions]
    ) -> HistoryView:
        """Return the history of a metric, one series per target, batch size and environment.

            client.performance.history("vision/resnet18", target="torch2.13-cpu-x86_64_v4", batch=8)

        Args:
            reference: The model's name, or a reference to one of its versions.
            metric: The metric; `metrics` lists them.
            **options: Which of its series and versions, see `HistoryOptions`.

        Raises:
            UnknownMetric: The metric is unknown; the hint has suggestions.
            NotFound: The model does not exist, or nothing was measured on the target, at the batch, of the
            implementation or in
                the environment; what there is is in the hint.
        """
        given: Mapping[str, Any] = {"metric": metric, **options}
        query = {name: value for name, value in given.items() if value is not None}
        path = f"{model_path(Reference.parse(reference).model)}/history"
        return self._transport.fetch(HistoryView, path, query)

    def metrics(self, model: str) -> SeriesList:
        """Return a model's series with their latest values.

        Raises:
            NotFound: The model does not exist; the hint has suggestions.
        """
        return self._transport.fetch(SeriesList, f"{model_path(model)}/metrics")

    def compare(
        self, before: str, after: str, target: str | None = None, with_target: str | None = None
    ) -> ComparisonView:
        """Compare two artifacts, the second against the first.

        Args:
            after: Another one, or the same for two targets of one version.
            target: Whose artifacts; where omitted the one target that both have.
            with_target: The second's, where that is another one.

        Raises:
            NotFound: A version does not exist or has no artifact for the target.
            Ambiguous: The versions have several targets in common; the hint lists them.
            InvalidInput: Both are the same artifact, or a reference is invalid.
        """
        given = {"before": before, "after": after, "target": target, "with_target": with_target}
        query = {name: value for name, value in given.items() if value is not None}
        return self._transport.fetch(ComparisonView, "/api/v1/compare", query)

    def changes(
        self,
        model: str | None = None,
        *,
        target: str | None = None,
        outcome: str | None = None,
        limit: int = 50,
    ) -> list[EventView]:
        """Return flagged changes of performance, newest first.

        Args:
            model: Only this model.
            target: Only this target.
            outcome: Only `better` or only `worse`.
            limit: Maximum number of entries.
        """
        query = {"model": model, "target": target, "outcome": outcome}
        pages = self._pages(EventPage, "/api/v1/performance/events", query)
        return list(islice((item for page in pages for item in page.events), limit))

    def report(
        self,
        measurements: Iterable[Mapping[str, Any]],
        *,
        environment: Environment | Mapping[str, Any] | None = None,
        environments: Mapping[str, Environment | Mapping[str, Any]] | None = None,
        on_batch: Callable[[Reported], object] | None = None,
    ) -> Reported:
        """Report measurements of artifacts taken elsewhere, such as in production.

            client.performance.report(
                [{"artifact": digest, "metric": "latency_p50", "value": 3.1, "unit": "ms", "batch": 8}],
                environment=pt2hub.environment(),
            )

        Batches of up to 1,000 are sent, each stored whole or not at all. Measurements with a known key count as
        duplicates, so an interrupted report can be sent again. The default key is derived from the content, so equal
        measurements count once.

        Args:
            measurements: Figures: `artifact`, `metric`, `value`, `unit`, and what else `POST /api/v1/measurements`
                takes. Say `measured_at` or a `key` where equal figures may come twice.
            environment: Environment of measurements without one of their own.
            on_batch: Called after each batch with the sum so far.

        Raises:
            InvalidInput: A measurement is invalid; the error gives its index. Earlier batches were stored.
            Conflict: A key exists with other content.
            TransientError: The server did not answer, again and again.
        """
        from pt2hub.client.performance.reporter import report

        machines = dict(environments or {})
        return report(self._transport, measurements, environment, machines, on_batch)

    def report_evaluations(self, evaluations: Sequence[Mapping[str, Any]]) -> Reported:
        """Report how good versions are on your own data.

            client.performance.report_evaluations([{
                "version": "vision/resnet18@3", "metric": "accuracy", "value": 0.7613, "unit": "1",
                "data_set": "imagenet-v2@sha256:...", "count": 10_000,
            }])

        They are stored all or none. The same content, or the same `key`, again is a duplicate.

        Args:
            evaluations: Up to 1,000; fields are those of `POST /api/v1/evaluations`.

        Raises:
            InvalidInput: A field is invalid, such as a data set without a digest.
            Conflict: A key exists with other content.
        """
        from pt2hub.client.performance.evaluations import report_evaluations

        return report_evaluations(self._transport, evaluations)

    def evaluations(
        self, model: str, metric: str | None = None, *, data_set: str | None = None, limit: int = 100
    ) -> list[EvaluationView]:
        """Return the evaluations of a model's versions, newest report first.

        Args:
            metric: Only by this metric.
            data_set: Only on this data set, `sha256:...` or `name@sha256:...`.
            limit: Maximum number of entries.

        Raises:
            NotFound: The model does not exist, or no version was evaluated by the metric.
        """
        query = {"metric": metric, "data_set": data_set}
        pages = self._pages(EvaluationPage, f"{model_path(model)}/evaluations", query, cursor="before")
        return list(islice((item for page in pages for item in page.evaluations), limit))
