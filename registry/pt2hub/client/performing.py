"""What a client does about performance: figures, comparisons, policies."""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from pt2hub.client.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from pt2hub.client.comparing import Comparisons
    from pt2hub.client.events import OnEvent
    from pt2hub.client.measuring import Measuring
    from pt2hub.client.performance import HistoryOptions, Performance
    from pt2hub.client.policies import Policies
    from pt2hub.client.reporting import Reporter
    from pt2hub.domain.artifacts import Environment
    from pt2hub.wire.performance import (
        ComparisonView,
        EventView,
        HistoryView,
        PolicyView,
        Reported,
        SeriesList,
    )
    from pt2hub.wire.shapes import BuildView


class Performing(Connection):
    """The part of `Client` that is about performance."""

    @cached_property
    def _reporter(self) -> Reporter:
        from pt2hub.client.reporting import Reporter

        return Reporter(self._transport)

    @cached_property
    def _performance(self) -> Performance:
        from pt2hub.client.performance import Performance

        return Performance(self._transport)

    @cached_property
    def _policies(self) -> Policies:
        from pt2hub.client.policies import Policies

        return Policies(self._transport)

    @cached_property
    def _comparisons(self) -> Comparisons:
        from pt2hub.client.comparing import Comparisons

        return Comparisons(self._transport)

    @cached_property
    def _measuring(self) -> Measuring:
        from pt2hub.client.measuring import Measuring

        return Measuring(self._transport)

    def measure(
        self,
        ref: str,
        target: str | None = None,
        repeat: int = 1,
        *,
        priority: int | None = None,
        beside: str | None = None,
    ) -> list[BuildView]:
        """Has artifacts timed again, each on a worker of its target; nothing is built.

            client.measure("vision/resnet18@12", beside="vision/resnet18@prod")

        A job that waits for the same artifact is joined: it makes the greater number of runs, at the higher priority.

        Args:
            ref: As for `load`.
            target: Of the version's artifacts only this target's.
            repeat: So many runs, 1 to 20, each of fresh processes.
            priority: Higher comes first; behind all builds where omitted.
            beside: A reference of the same team: its artifact for the same target is timed in the same processes, and
                `compare` then rests on that. The version before where omitted.

        Returns:
            The queued jobs, one of each artifact; `follow_builds` waits for them.

        Raises:
            InvalidInput: `beside` is of another team or the same artifact.
            NotFound: There is no such version, or one has no artifact for the target.
            NotReady: The version has no artifact yet.
            Unauthorized: The token is missing or wrong.
        """
        return self._measuring.measure(ref, target=target, repeat=repeat, priority=priority, beside=beside)

    def follow_builds(self, builds: Sequence[BuildView], on_event: OnEvent | None = None) -> list[BuildView]:
        """Waits until builds or measuring jobs are over, whatever their versions; see `Measuring.follow`."""
        return self._measuring.follow([build.id for build in builds], on_event)

    def history(
        self, reference: str, metric: str = "latency_p50", **options: Unpack[HistoryOptions]
    ) -> HistoryView:
        """How a metric moved over a model's versions, a series per target, batch and environment.

            client.history("vision/resnet18", "latency_p50", target="torch2.13-cpu-x86_64_v4", batch=8)

        Args:
            reference: The model's name, or a reference to one of its versions.
            metric: What is measured; `metrics` lists what there is.
            **options: Which of its series and versions, see `performance.HistoryOptions`.

        Raises:
            UnknownMetric: Nobody knows the metric; near names are in the hint.
            NotFound: There is no such model, or nothing was measured of what was asked for.
        """
        return self._performance.history(reference, metric, **options)

    def metrics(self, model: str) -> SeriesList:
        """What is measured of a model: its series with their last values."""
        return self._performance.metrics(model)

    def compare(
        self, before: str, after: str, target: str | None = None, with_target: str | None = None
    ) -> ComparisonView:
        """Two artifacts side by side, the second judged against the first; see `Comparisons.compare`."""
        return self._comparisons.compare(before, after, target=target, with_target=with_target)

    def events(
        self,
        model: str | None = None,
        *,
        target: str | None = None,
        verdict: str | None = None,
        limit: int = 50,
    ) -> list[EventView]:
        """Changes of performance that were flagged, newest first.

        Args:
            model: Of this model only.
            target: For this target only.
            verdict: Only `better` or only `worse`.
            limit: At most so many.
        """
        found = self._comparisons.events(model=model, target=target, verdict=verdict)
        return list(islice(found, limit))

    def policy(self, model: str) -> PolicyView:
        """What a model's owners demand of its performance before an alias moves; revision 0 where nothing."""
        return self._policies.policy(model)

    def set_policy(
        self, model: str, document: Mapping[str, Any] | str | Path, revision: int | None = None
    ) -> PolicyView:
        """Changes the whole policy of a model.

        Args:
            model: The model's name.
            document: The policy, or a YAML or JSON file of it.
            revision: The one it is at as far as the caller knows, 0 where it has none. Where omitted, the one it is
                at now.

        Raises:
            InvalidInput: A field is wrong.
            UnknownMetric: Neither pt2hub nor the model knows a metric.
            PolicyChanged: It is at another revision; the error shows who changed it.
        """
        return self._policies.put(model, document, revision)

    def report(
        self,
        measurements: Iterable[Mapping[str, Any]],
        *,
        environment: Environment | Mapping[str, Any] | None = None,
        environments: Mapping[str, Environment | Mapping[str, Any]] | None = None,
        on_batch: Callable[[Reported], object] | None = None,
    ) -> Reported:
        """Reports figures of artifacts that were taken elsewhere, such as in production; see `Reporter.report`.

            client.report(
                [{"artifact": digest, "metric": "latency_p50", "value": 3.1, "unit": "ms", "batch": 8}],
                environment=pt2hub.environment(),
            )

        Args:
            measurements: Figures: `artifact`, `metric`, `value`, `unit`, and what else `POST /api/v1/measurements`
                takes. Say `measured_at` or a `key` where equal figures may come twice.
            environment: Where those were taken that do not say it.
            environments: Machines by the names that figures say.
            on_batch: Called after each 1,000 with the sum so far.
        """
        return self._reporter.report(
            measurements, environment=environment, environments=environments, on_batch=on_batch
        )
