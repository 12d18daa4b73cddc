"""The models of the team `demo-ranking`."""

from __future__ import annotations

from pt2hub.server.demo.models import Effect, Failure, Model, Speed, batch
from pt2hub.server.demo.tensors import ranker, recurrent

_TABLES = {"user": 120_000, "item": 90_000, "shop": 8_000, "category": 1_204, "hour": 168}


def _ids(*names: str, rows: int) -> list[dict[str, object]]:
    return [
        {"name": name, "shape": ["batch"], "dtype": "int64", "generate": {"randint": {"high": rows}}}
        for name in names
    ]


MODELS = (
    Model(
        name="demo-ranking/feed-ranker-dcn",
        text="The order of the feed. Trained anew every week; the graph changes a few times a year.",
        source={"code": "feed", "entry": "feed.dcn:build", "kwargs": {"cross_layers": 3}},
        inputs=_ids("user", "item", "shop", "category", "hour", rows=168),
        dims=batch(4096, 512),
        batches=(64, 512),
        tensors=ranker(_TABLES, 64, (512, 256, 64), crosses=3),
        speeds={
            "sm89": Speed(0.21, 0.00052),
            "x86_64_v4": Speed(0.34, 0.0021),
            "x86_64_v3": Speed(0.41, 0.0033),
        },
        versions=60,
        began=1,
        code_bytes=142_000,
        changed=(13, 27, 29, 44, 55),
        upgraded=212,
        joined={"sm89": 30},
        effects=(
            Effect(0.90, 13),
            Effect(1.21, 27, 28, "x86_64_v4"),
            Effect(1.18, 27, 28, "x86_64_v3"),
            Effect(0.93, 44, None, "sm89"),
            Effect(1.07, 55, None, "x86_64_v3"),
        ),
        failures=(
            Failure(20, "drifted"),
            Failure(38, "storage", "x86_64_v3"),
            Failure(51, "cancelled", "sm89"),
        ),
        rolled_back={
            27: "p99 of the feed went up by 4 ms at noon: the cross layers are no longer fused",
            49: "clicks fell by 1.8 % against 48 in the experiment",
        },
        promoted=1,
    ),
    Model(
        name="demo-ranking/two-tower-users",
        text="Vectors of users; neighbours among items are candidates for the feed.",
        source={"code": "towers", "entry": "towers:user_tower", "kwargs": {"width": 64}},
        inputs=_ids("user", "shop", rows=8_000),
        dims=batch(2048, 256),
        batches=(256,),
        tensors=ranker({"user": 120_000, "shop": 8_000}, 64, (256, 64)),
        speeds={"x86_64_v4": Speed(0.18, 0.0011), "sm75": Speed(0.24, 0.00071)},
        versions=18,
        began=75,
        code_bytes=88_000,
        changed=(10,),
        upgraded=231,
        effects=(Effect(0.91, 10),),
        failures=(Failure(6, "lost_often", "sm75"),),
    ),
    Model(
        name="demo-ranking/two-tower-items",
        text="Vectors of items, computed at night for the whole catalogue.",
        source={"code": "towers", "entry": "towers:item_tower", "kwargs": {"width": 64}},
        inputs=_ids("item", "category", rows=1_204),
        dims=batch(8192, 1024),
        batches=(1024,),
        tensors=ranker({"item": 90_000, "category": 1_204}, 64, (256, 64)),
        speeds={"x86_64_v4": Speed(0.19, 0.0010)},
        versions=14,
        began=75,
        code_bytes=86_000,
        changed=(8,),
        upgraded=231,
    ),
    Model(
        name="demo-ranking/dlrm-ads-ctr",
        text="How likely a click on an advertisement is.",
        source={"code": "ads", "entry": "ads.dlrm:build", "kwargs": {"dense": 13}},
        inputs=[
            {"name": "dense", "shape": ["batch", 13], "generate": {"uniform": {}}},
            *_ids("user", "item", "shop", rows=8_000),
        ],
        dims=batch(2048, 256),
        batches=(256,),
        tensors=ranker(_TABLES, 32, (512, 256, 1)),
        speeds={"sm80": Speed(0.28, 0.00062), "x86_64_v4": Speed(0.42, 0.0026)},
        versions=11,
        began=140,
        code_bytes=131_000,
        changed=(6,),
        upgraded=237,
        effects=(Effect(1.05, 6), Effect(0.90, 9)),
        failures=(Failure(2, "factory_failed"),),
    ),
    Model(
        name="demo-ranking/session-gru",
        text="What somebody looks at next. An experiment: nothing of it was ready yet.",
        source={"code": "session", "entry": "session:build", "kwargs": {"steps": 50}},
        inputs=[
            {
                "name": "clicks",
                "shape": ["batch", 50],
                "dtype": "int64",
                "generate": {"randint": {"high": 90_000}},
            }
        ],
        dims=batch(256, 32),
        batches=(32,),
        tensors=recurrent(1, 64, 256, 90_000),
        speeds={"x86_64_v4": Speed(1.1, 0.05)},
        versions=2,
        began=352,
        code_bytes=120_000,
        changed=(2,),
        failures=(Failure(1, "data_dependent"), Failure(2, "data_dependent")),
    ),
)
