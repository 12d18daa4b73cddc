from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.domain.tokens import Actor
from pt2hub.errors import AliasMoved, Forbidden, PromotionCheckFailed
from pt2hub.rendering.comparisons import comparison_row
from pt2hub.server.blobs.keys import StorageKey
from support.gated import NOISY, OFTEN, latency, measure, only, replicated, version
from support.registry import ENVIRONMENT, V3, V4

if TYPE_CHECKING:
    from pt2hub.wire.responses import AliasView
    from support.registry import Registry

MODEL = "vision/resnet18"
CHECK: dict[str, Any] = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
ADMIN = Actor("root", admin=True)


def policy(registry: Registry, *checks: dict[str, Any], metrics: dict[str, Any] | None = None) -> None:
    """Makes these the checks of the model."""
    policies = registry.services.policies
    now = policies.policy(MODEL).revision
    policies.put(
        MODEL, {"checks": list(checks), "metrics": metrics or {}}, revision=now, by=Actor("ada", admin=True)
    )


def move(registry: Registry, number: int, expected: int | None, alias: str = "prod") -> AliasView:
    aliases = registry.services.aliases
    return aliases.move(MODEL, alias, number, expected=expected, reason="release", by=Actor("ci"))


def force(registry: Registry, number: int, expected: int | None, by: Actor = ADMIN) -> AliasView:
    aliases = registry.services.aliases
    return aliases.force(MODEL, "prod", number, expected=expected, reason="it mends a wrong result", by=by)


def refused(registry: Registry, number: int, expected: int) -> PromotionCheckFailed:
    """The refusal of a move, after which the alias is where it was."""
    with pytest.raises(PromotionCheckFailed) as caught:
        move(registry, number, expected)
    assert registry.services.aliases.alias(MODEL, "prod").number == expected
    assert caught.value.hint
    return caught.value


def beside(after: int, before: int) -> str:
    """The command that gives two versions figures of the same processes."""
    return f"pt2hub measure {MODEL}@{after} --target {V4} --baseline {MODEL}@{before}"


def slower(registry: Registry, times: float = 1.2) -> list[Digest]:
    """Two versions, the second so many times slower, and `prod` on the first with a check of 5 %."""
    found = [version(registry, latency(10.0)), version(registry, latency(10.0 * times))]
    policy(registry, CHECK)
    move(registry, 1, None)
    return found


def test_a_version_that_is_slower_than_allowed_is_refused_with_the_comparison(registry: Registry) -> None:
    slower(registry)
    error = refused(registry, 2, 1)
    for part in (
        f"{MODEL}@prod stays on 1",
        f"latency_p50 on {V4} at batch 2",
        "12 ms, was 10 ms",
        "at most 5 %",
    ):
        assert part in error.message
    assert f"To double-check, run `{beside(2, 1)}`." in str(error.hint)
    assert "--force" in str(error.hint)
    (check,) = error.context.pop("refused")
    assert error.context == {"model": MODEL, "alias": "prod", "from": 1, "to": 2, "revision": 1, "count": 1}
    assert (check["path"], check["target"], check["missing"]) == ("checks[0]", V4, False)
    comparison = check["comparison"]
    assert (comparison["outcome"], comparison["before"], comparison["after"]) == ("worse", 10.0, 12.0)
    assert comparison["ratio"] == pytest.approx(1.2, rel=0.01)


def test_a_version_that_is_as_quick_or_quicker_passes_and_says_so(registry: Registry) -> None:
    for value in (10.0, 10.1, 8.0):
        version(registry, latency(value))
    policy(registry, CHECK)
    made = move(registry, 1, None)
    assert made.notes == ("prod was not on a version, so the policy had nothing to compare with",)
    (said,) = move(registry, 2, 1).notes
    assert "1 % worse in 2 than in 1 (10.1 ms, was 10 ms); at most 5 %" in said
    (said,) = move(registry, 3, 2).notes
    assert "better in 3 than in 2" in said
    view = registry.services.aliases.alias(MODEL, "prod")
    assert (view.notes, [item.forced for item in view.history]) == ((), [None] * 3)


def test_what_a_comparison_calls_no_change_is_none_for_a_check_too(registry: Registry) -> None:
    for times in (1.0, 1.000337):
        version(registry, latency(10.0 * times))
    policy(registry, CHECK)
    move(registry, 1, None)
    (check,) = registry.services.aliases.preview(MODEL, "prod", 2, by=None).checks
    compared = registry.services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@2", target=V4)
    (shown,) = (comparison_row(item)[3] for item in compared.metrics if item.metric == "latency_p50")
    assert shown.startswith("no change")
    assert check.found == "no change (10 ms, was 10 ms)"
    (said,) = move(registry, 2, 1).notes
    assert "at batch 2: no change from 1 to 2 (10 ms, was 10 ms); at most 5 % worse is allowed" in said


def test_what_fails_a_check_is_never_called_no_change(registry: Registry) -> None:
    for size in (1_000_000, 1_000_300):
        version(registry, replicated("package_bytes", size, "B"))
    policy(registry, {"alias": "prod", "metric": "package_bytes", "max_worse": 0.0})
    move(registry, 1, None)
    assert "0.03 % worse in 2 than in 1" in refused(registry, 2, 1).message


def test_checks_are_for_their_alias_and_every_move_of_it_also_back(registry: Registry) -> None:
    slower(registry)
    move(registry, 1, None, "canary")
    assert move(registry, 2, 1, "canary").notes == ()
    move(registry, 1, 2, "canary")
    policy(registry, {**CHECK, "alias": None})
    with pytest.raises(PromotionCheckFailed):
        move(registry, 2, 1, "prod")
    registry.services.aliases.remove(MODEL, "canary", expected=1, reason="gone", by=Actor("ci"))
    with pytest.raises(PromotionCheckFailed, match="stays removed, where it was on 1: latency_p50"):
        move(registry, 2, None, "canary")  # made anew: what it was on counts still
    assert move(registry, 1, None, "canary").number == 1
    force(registry, 2, 1)
    assert move(registry, 1, 2).number == 1  # a rollback to the quicker one


def test_a_rollback_to_a_slower_version_passes_only_where_the_alias_was_on_it_under_the_present_policy(
    registry: Registry,
) -> None:
    version(registry, latency(12.0))
    version(registry, latency(10.0))
    policy(registry, CHECK)
    move(registry, 1, None)
    move(registry, 2, 1)
    (said,) = move(registry, 1, 2).notes
    assert "20 % worse in 1 than in 2" in said
    assert said.endswith("; it passes because prod was on 1 under this policy before")
    move(registry, 2, 1)
    (shown,) = registry.services.aliases.preview(MODEL, "prod", 1, by=None).checks
    assert shown.passed
    assert shown.found.endswith("worse (12 ms, was 10 ms), but prod was on it before")
    policy(registry, {**CHECK, "max_worse": 0.04})
    assert "20 % worse in 1 than in 2" in refused(registry, 1, 2).message
    force(registry, 1, 2)
    move(registry, 2, 1)
    assert "20 % worse" in refused(registry, 1, 2).message  # what was forced was not allowed


def test_an_admin_forces_it_and_the_history_keeps_what_was_overridden(registry: Registry) -> None:
    slower(registry)
    before = refused(registry, 2, 1).context["refused"]
    forced = force(registry, 2, 1)
    assert (forced.number, forced.last.by) == (2, "root")
    assert forced.last.forced == {"revision": 1, "count": 1, "refused": before}
    assert force(registry, 2, 1).history == forced.history  # asked for again, as of who lost the answer
    assert registry.services.aliases.alias(MODEL, "prod").history[0].forced == forced.last.forced
    assert f"forced past: latency_p50 on {V4}" in str(forced)
    plain = force(registry, 1, 2)  # nothing refuses it
    assert (plain.number, plain.last.forced) == (1, None)


def test_only_an_admin_forces_even_where_nothing_refuses(registry: Registry) -> None:
    slower(registry)
    for expected in (1, None):
        with pytest.raises(Forbidden, match='"ci" is not an admin token') as caught:
            force(registry, 2, expected, Actor("ci"))
        assert "--scope admin --models vision/" in str(caught.value.hint)
    with pytest.raises(AliasMoved):  # the right to force is no right to be blind
        force(registry, 2, 2 + 1)


@pytest.mark.parametrize("lacking", [1, 2])
def test_what_was_not_measured_is_refused_with_the_command_that_measures_it(
    registry: Registry, lacking: int
) -> None:
    digests = slower(registry, 1.0)
    only(registry, digests[lacking - 1], replicated("throughput", 90.0, "1/s", batch=2))
    error = refused(registry, 2, 1)
    assert f"it was not measured for version {lacking}" in error.message
    assert f"Measure: `{beside(2, 1)}`. An" in str(error.hint)
    assert error.context["refused"][0]["missing"] is True
    only(registry, digests[lacking - 1])
    only(registry, digests[2 - lacking])
    error = refused(registry, 2, 1)
    assert "it was measured for neither 1 nor 2" in error.message
    assert f"Measure: `{beside(2, 1)}`. An" in str(error.hint)
    measure(registry, digests[1], latency(10.0), beside=(digests[0], 1.0))
    assert move(registry, 2, 1).number == 2


def test_what_cannot_be_checked_passes_where_the_gate_says_so(registry: Registry) -> None:
    digests = slower(registry, 1.0)
    only(registry, digests[1])
    policy(registry, {**CHECK, "missing": "pass"})
    (said,) = move(registry, 2, 1).notes
    assert said.endswith("the check lets it pass")


def test_noise_that_is_too_wide_is_refused_unless_its_worst_is_allowed(registry: Registry) -> None:
    version(registry, latency(10.0))
    version(registry, latency(10.0, noise=NOISY))
    policy(registry, CHECK)
    move(registry, 1, None)
    error = refused(registry, 2, 1)
    assert "cannot be compared" in error.message
    assert "from noise" in error.message
    assert error.context["refused"][0]["comparison"]["reason"] == "too_noisy"
    policy(registry, {**CHECK, "max_worse": 9})
    assert move(registry, 2, 1).number == 2


def test_figures_of_another_machine_are_refused_until_both_are_measured_on_one(registry: Registry) -> None:
    digests = slower(registry, 1.0)
    only(registry, digests[1])
    other = replace(ENVIRONMENT, cpu_model="Xeon")
    measure(registry, digests[1], latency(10.0), environment=other)
    error = refused(registry, 2, 1)
    assert "cpu_model: EPYC, then Xeon" in error.message
    assert f"Measure: `{beside(2, 1)}`. An" in str(error.hint)
    measure(registry, digests[0], latency(10.0), environment=other, times=OFTEN)
    assert move(registry, 2, 1).number == 2


def test_a_run_of_both_side_by_side_is_believed_before_two_runs_apart(registry: Registry) -> None:
    first, second = slower(registry)
    measure(registry, second, latency(12.0), beside=(first, 1.01))
    assert "1 % worse" in move(registry, 2, 1).notes[0]


def test_a_limit_below_the_least_effect_is_taken_at_its_word(registry: Registry) -> None:
    first, second = slower(registry)
    policy(registry, {**CHECK, "max_worse": 0.01})
    measure(registry, second, latency(12.0), beside=(first, 1.03))
    error = refused(registry, 2, 1)
    assert "3 % worse in 2 than in 1" in error.message
    assert error.context["refused"][0]["comparison"]["outcome"] == "same"
    policy(registry, {**CHECK, "max_worse": 0.04})
    assert move(registry, 2, 1).number == 2


def test_more_is_better_of_some_metrics_and_sizes_have_no_noise(registry: Registry) -> None:
    def measured(throughput: float, size: float) -> None:
        figures = replicated("throughput", throughput, "1/s", batch=2), replicated("package_bytes", size, "B")
        version(registry, *figures)

    measured(100.0, 1_000_000)
    measured(80.0, 1_002_000)
    measured(120.0, 1_000_000)
    policy(registry, {"metric": "throughput", "max_worse": 0.2}, {"metric": "package_bytes", "max_worse": 0})
    move(registry, 1, None)
    error = refused(registry, 2, 1)
    assert f"{MODEL}@prod stays on 1: 2 checks refuse version 2" in error.message
    assert [item.path for item in error.details] == ["checks[0]", "checks[1]"]
    assert "25 % worse" in error.details[0].message  # four fifths: a quarter longer for the same work
    assert "0.2 % worse in 2 than in 1 (978.5 KiB, was 976.6 KiB)" in error.details[1].message
    assert "package_bytes" in move(registry, 3, 1).notes[1]


def test_a_metric_of_ones_own_is_asked_to_be_reported_and_a_builds_cannot_be_had_again(
    registry: Registry,
) -> None:
    for _ in range(2):
        version(registry, latency(10.0))
    checks = [{"metric": name, "max_worse": 0.1} for name in ("joules", "compile_time")]
    policy(registry, *checks, metrics={"joules": {"better": "lower"}})
    move(registry, 1, None)
    error = refused(registry, 2, 1)
    assert [item.path for item in error.details] == ["checks[0]", "checks[1]"]
    assert str(error.hint).startswith(
        "Report joules of both with `pt2hub report`. An admin token can force it: "
    )


def two_targets(registry: Registry, **figures: tuple[float, ...]) -> None:
    """A version for V3 and V4, with a latency for each target that is named."""
    seed = registry.sql("SELECT count(*) FROM versions")[0][0]
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed}, targets=[V3, V4])
    for build in view.builds:
        values = figures.get("v3" if build.target == V3 else "v4")
        if values is not None:
            claim = registry.claim(build.id, f"w {build.target}")
            publication = registry.publication(
                claim, code=f"code {seed}".encode(), key=f"{seed}{build.target}"
            )
            registry.services.builds.publish(claim, publication)
            found = [latency(value, batch=2**place) for place, value in enumerate(values, 1)]
            only(registry, publication.manifest.digest, *found)


def test_every_target_that_both_have_is_looked_at_and_a_named_one_must_be_there(registry: Registry) -> None:
    two_targets(registry, v3=(10.0,), v4=(10.0,))
    two_targets(registry, v3=(10.0,), v4=(15.0,))
    two_targets(registry, v3=(10.0,))
    policy(registry, CHECK)
    move(registry, 1, None)
    (check,) = refused(registry, 2, 1).context["refused"]
    assert check["target"] == V4
    (said,) = move(registry, 3, 1).notes
    assert V3 in said
    registry.services.aliases.remove(MODEL, "prod", expected=3, reason="again", by=Actor("ci"))
    policy(registry, {**CHECK, "target": V4})
    move(registry, 1, None)
    error = refused(registry, 3, 1)
    assert f"latency_p50 on {V4} cannot be compared: 3 has no artifact for that target" in error.message
    force(registry, 3, 1)
    assert "3 had no artifact for it to compare with" in move(registry, 1, 3).notes[0]


def test_versions_without_a_target_in_common_cannot_be_compared(registry: Registry) -> None:
    two_targets(registry, v3=(10.0,))
    two_targets(registry, v4=(10.0,))
    policy(registry, CHECK)
    move(registry, 1, None)
    assert "2 and 1 have no common target" in refused(registry, 2, 1).message


def test_a_gate_without_a_batch_is_for_each_that_both_have(registry: Registry) -> None:
    two_targets(registry, v4=(10.0, 20.0, 30.0))
    two_targets(registry, v4=(10.0, 30.0))
    policy(registry, {**CHECK, "batch": 2})
    move(registry, 1, None)
    assert len(move(registry, 2, 1).notes) == 1
    move(registry, 1, 2)
    policy(registry, CHECK)
    (check,) = refused(registry, 2, 1).context["refused"]
    assert check["comparison"]["batch"] == 4
    policy(registry, {**CHECK, "batch": 8})
    assert "it was not measured for version 2" in refused(registry, 2, 1).message


def test_a_change_of_the_policy_waits_for_moves_and_holds_for_those_after_it(registry: Registry) -> None:
    slower(registry)
    policy(registry)

    def swap(_: int) -> None:
        now = registry.services.aliases.alias(MODEL, "prod").number or 0
        try:
            move(registry, 3 - now, now)
        except (AliasMoved, PromotionCheckFailed):
            return

    with ThreadPoolExecutor(4) as pool:
        moves = [pool.submit(swap, turn) for turn in range(30)]
        policy(registry, CHECK)
        at = registry.services.policies.policy(MODEL).at
        for item in moves:
            item.result()
    late = [item for item in registry.services.aliases.alias(MODEL, "prod").history if item.at > str(at)]
    (then, *_) = [item.after for item in registry.services.aliases.alias(MODEL, "prod").history[len(late) :]]
    assert {item.after for item in late} <= {
        1,
        then,
    }  # what it was on when the policy changed is known to be good


def test_moves_and_measurements_at_the_same_time_disturb_each_other_in_nothing(registry: Registry) -> None:
    first, second = slower(registry, 1.0)

    def measuring(turn: int) -> None:
        measure(
            registry, (first, second)[turn % 2], latency(10.0), beside=None if turn % 2 == 0 else (first, 1.0)
        )

    def moving(_: int) -> int:
        now = registry.services.aliases.alias(MODEL, "prod").number or 0
        try:
            return move(registry, 3 - now, now).number or 0
        except AliasMoved:
            return 0

    with ThreadPoolExecutor(6) as pool:
        measured = [pool.submit(measuring, turn) for turn in range(20)]
        moved = [pool.submit(moving, turn) for turn in range(20)]
        assert [item.result() for item in measured] == [None] * 20
        assert {item.result() for item in moved} <= {0, 1, 2}  # and none was refused


def test_no_alias_moves_to_a_damaged_version_unless_an_admin_forces_it(registry: Registry) -> None:
    version(registry, latency(10.0))
    version(registry, latency(10.0))
    move(registry, 1, None)
    ((code,),) = registry.sql(
        "SELECT code FROM artifacts JOIN builds b ON b.id = build_id JOIN versions v ON v.id = version_id WHERE number = 2"
    )
    key = StorageKey.blob(Digest(code))
    registry.services.storage.remove([key.at(1)])
    assert registry.services.damage.check_key(key, by="scrub")
    (found,) = registry.services.aliases.preview(MODEL, "prod", 2, by=None).checks
    assert (found.passed, found.kind, found.found) == (False, "damage", "damaged on the server: code")
    with pytest.raises(PromotionCheckFailed, match="damaged on the server: code") as caught:
        move(registry, 2, 1)
    assert "pt2hub admin heal" in str(caught.value.hint)
    assert force(registry, 2, 1).number == 2
