"""`python -m reference_generator` with docs/ on the path: writes the pages."""

from pathlib import Path

from reference_generator import pages

if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "reference"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
        print(f"docs/reference/{name}: {len(text.splitlines())} lines")
