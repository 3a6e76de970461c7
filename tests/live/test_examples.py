"""The examples run as they are documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.live_group import free_addresses

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "words", "count", "said"),
    [
        ("kv_store.py", [], 4, "4 replicas agree on 11 keys"),
        ("chat.py", ["--scripted"], 3, "heard: anyone for lunch? / yes, at noon"),
        ("work_log.py", [], 3, "12 jobs done, each once"),
    ],
)
def test_examples_do_what_they_say(example: str, words: list[str], count: int, said: str) -> None:
    command = [sys.executable, str(EXAMPLES / example), *words, *sorted(free_addresses(count))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(said) == (3 if example == "chat.py" else 1)


def test_the_program_in_the_documentation_runs(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "docs" / "live.md").read_text()
    program = tmp_path / "program.py"
    program.write_text(text.split("```python\n")[1].split("```")[0])
    addresses = free_addresses(3)
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), own, *(peer for peer in addresses if peer != own), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for own in addresses
    ]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    greetings = [[line for line in output.splitlines() if "hello" in line] for output in outputs]
    assert len(greetings[0]) == 3
    assert greetings[0] == greetings[1] == greetings[2]
