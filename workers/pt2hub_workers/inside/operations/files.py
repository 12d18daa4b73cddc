"""Files of a workspace that both sides of the channel know, by path relative to the workspace."""

from pt2hub.domain.debug_logs import DEBUG_LOGS as DEBUG_LOG_KINDS

STEM = "model"
"""Fixed file stem of generated code: it is part of kernel symbols, so that equal programs give equal bytes."""
WEIGHTS = "out/weights.safetensors"
"""Weights that a version's first build writes."""
GOLDEN = {"inputs": "out/golden-inputs.safetensors", "outputs": "out/golden-outputs.safetensors"}
"""Golden values of a version, by their names in the golden document."""
VERIFICATION_INPUTS = "out/verification-inputs.safetensors"
"""Inputs and perturbations for the artifact's process."""
EXPECTED_OUTPUTS = "out/expected.safetensors"
"""Expected outputs for the verifier."""
ARTIFACT_OUTPUTS = "out/found.safetensors"
"""Outputs of the artifact, written by its process."""
SOURCES = "out/sources.zip"
"""Generated sources, if code was compiled."""
FUSION = "out/fusion.json"
"""The exported graph and the operations of each kernel, if code was compiled (`pt2hub.domain.fusion`)."""
DEBUG_LOGS = {kind: f"out/debug-{kind}.txt" for kind in DEBUG_LOG_KINDS}
"""Torch's logs of the compile that the spec asks for, by kind (`pt2hub.domain.debug_logs`)."""
AUTOTUNE_TIMES = "out/autotune-times.json"
"""What autotuning measured (`inside.builds.compile.known_times`), if it measured anything."""
TRACE = "out/trace.json"
"""The profiler's raw trace."""
MAX_TRACE_BYTES = 16 << 20
"""Maximum size of that file; packed it is a tenth."""
CALL_NAME = "pt2hub: call"
"""Name of a traced call in it."""
