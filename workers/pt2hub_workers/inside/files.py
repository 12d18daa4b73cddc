"""Files of a room that both sides of the channel know by name, relative to the room."""

WEIGHTS = "out/weights.safetensors"
"""The weights that a version's first build writes."""
GOLDEN = {"inputs": "out/golden-inputs.safetensors", "outputs": "out/golden-outputs.safetensors"}
"""A version's golden values, by what the golden document calls them."""
TRIAL = "out/trial.safetensors"
"""What the gate's process is given: inputs and perturbations."""
EXPECTED = "out/expected.safetensors"
"""What the judge compares with."""
FOUND = "out/found.safetensors"
"""What the artifact computed in the gate's process."""
SOURCES = "out/sources.zip"
"""Generated sources, where code was compiled."""
