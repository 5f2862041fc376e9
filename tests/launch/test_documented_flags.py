"""Flags that the documentation gives to a launcher are flags that it knows."""

import re
import subprocess
import sys

import pytest
from small_run import ROOT

# Flags of the program that pages pass through a launcher.
PROGRAM = re.compile(r"--(workdir|config)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"bash (launch/\w+\.sh)((?: \\\n|[^\n`])*)")


def commands():
    for page in PAGES:
        for script, words in COMMAND.findall(page.read_text()):
            if not script.startswith("launch/test"):
                yield pytest.param(
                    script, words.split("#")[0], id=f"{page.name}-{script}{words[:20]}"
                )


@pytest.mark.parametrize(("script", "words"), list(commands()))
def test_documented_flags_are_in_the_manual(script, words):
    shown = subprocess.run(
        ["bash", script, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    if script == "launch/gke.sh":
        more = [sys.executable, "launch/gke/render.py", "--help"]
        shown += subprocess.run(more, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for flag in re.findall(r"(?<=\s)--[a-z-]+", words):
        assert PROGRAM.match(flag) or flag in shown, flag
    verb = re.match(r"\s+([a-z]+)\s", words)
    assert verb is None or verb[1] in shown
