"""The models of the team `demo-audio`."""

from __future__ import annotations

from pt2hub.server.demo.models import Effect, Failure, Model, Speed, batch
from pt2hub.server.demo.tensors import recurrent, transformer

MODELS = (
    Model(
        name="demo-audio/whisper-small-encoder",
        text="Turns thirty seconds of a call into vectors; the decoder writes the transcript from them.",
        source={
            "code": "whisper",
            "entry": "asr.encoder:build",
            "kwargs": {"size": "small"},
            "requirements": ["transformers>=5.0"],
        },
        inputs=[{"name": "features", "shape": ["batch", 80, 3000], "generate": {"normal": {}}}],
        dims=batch(32, 4),
        batches=(1, 4, 16),
        tensors=transformer(12, 768, 0, prefix="layers"),
        speeds={"sm90": Speed(2.3, 1.15), "sm80": Speed(2.9, 2.15), "sm75": Speed(5.6, 9.8)},
        versions=24,
        began=30,
        code_bytes=402_000,
        halves=True,
        changed=(6, 12, 19),
        upgraded=216,
        effects=(
            Effect(0.84, 6),
            Effect(1.17, 12, 12),
            Effect(0.92, 19),
            Effect(1.22, 15, 16, metric="memory"),
        ),
        failures=(
            Failure(3, "nan_output", "sm75"),
            Failure(9, "out_of_memory", "sm75"),
            Failure(16, "worker_lost", "sm80"),
            Failure(23, "cancelled", "sm75"),
            Failure(24, "runs", "sm80"),
            Failure(24, "waits", "sm75"),
        ),
        rolled_back={12: "the new mel front end is 17 % slower; rolled back while it is profiled"},
    ),
    Model(
        name="demo-audio/wav2vec2-keywords",
        text="Listens for 30 words, so that the assistant wakes up only when it is meant.",
        source={
            "factory": "transformers:Wav2Vec2ForSequenceClassification",
            "config": {"num_labels": 31, "num_hidden_layers": 12},
        },
        inputs=[{"name": "input_values", "shape": ["batch", 16000], "generate": {"normal": {}}}],
        dims=batch(16, 2),
        batches=(1, 2),
        tensors=transformer(12, 768, 0, head=31),
        speeds={"sm89": Speed(2.0, 0.44), "x86_64_v4": Speed(5.5, 17.0)},
        versions=13,
        began=88,
        code_bytes=389_000,
        changed=(7,),
        upgraded=234,
        effects=(Effect(0.89, 7),),
        failures=(Failure(4, "input_refused"), Failure(11, "compile", "x86_64_v4")),
    ),
    Model(
        name="demo-audio/crnn-voice-activity",
        text="Where somebody speaks, ten times a second. Small enough to run on every telephone server.",
        source={"code": "vad", "entry": "vad:Crnn", "kwargs": {"hidden": 128}},
        inputs=[{"name": "frames", "shape": ["batch", 100, 64], "generate": {"normal": {}}}],
        dims=batch(64, 16),
        batches=(1, 16),
        tensors=recurrent(2, 64, 128, 2),
        speeds={"x86_64_v4": Speed(0.31, 0.062), "x86_64_v3": Speed(0.39, 0.11)},
        versions=17,
        began=62,
        code_bytes=96_000,
        changed=(9,),
        upgraded=243,
        effects=(Effect(0.78, 9), Effect(1.14, 13, 14, "x86_64_v3")),
        rolled_back={13: "slower on the old telephone servers"},
    ),
)
