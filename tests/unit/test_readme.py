from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_every_file_of_the_code() -> None:
    readme = (ROOT / "README.md").read_text()
    files = [file for folder in ("flows", "tasks") for file in (ROOT / folder).rglob("*.py")]
    summed_up = ("tracking", "report")
    missing = [
        str(file.relative_to(ROOT))
        for file in files
        if file.name != "__init__.py" and file.parent.name not in summed_up and file.name not in readme
    ]
    assert files
    assert missing == []
