"""Engines in scripts of one's own: left without `close`, and interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from served import children, wait_until

SCRIPT = """
import json, sys
from octavo import LLM, SamplingParams
llm = LLM(**json.loads(sys.argv[1]))
print("loaded", flush=True)
params = SamplingParams(temperature=0, max_tokens=int(sys.argv[2]), ignore_eos=True)
outputs = llm.generate(["Hello"] * 8, params, use_tqdm=False)
print(len(outputs[0].outputs[0].token_ids), flush=True)
"""


def start(options: dict[str, Any], max_tokens: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, json.dumps(options), str(max_tokens)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("worker", ["inline", "process"])
def test_a_script_that_does_not_close_its_engine_ends(tiny_options: dict[str, Any], worker: str) -> None:
    script = start({**tiny_options, "worker": worker}, 5)
    printed, said = script.communicate(timeout=120)
    assert (script.returncode, printed) == (0, "loaded\n5\n"), said
    assert "Traceback" not in said


@pytest.mark.parametrize("worker", ["inline", "process"])
def test_an_interrupted_script_ends_at_once(tiny_options: dict[str, Any], worker: str) -> None:
    with start({**tiny_options, "worker": worker}, 1000) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "loaded\n"
        workers = children(script.pid)
        assert len(workers) == (1 if worker == "process" else 0)
        script.send_signal(signal.SIGINT)
        printed, said = script.communicate(timeout=60)
        assert (script.returncode, printed) == (-signal.SIGINT, "")
        assert said.rstrip().endswith("KeyboardInterrupt")
        wait_until(lambda: not children(script.pid))


def test_a_worker_ends_with_its_parent(tiny_options: dict[str, Any]) -> None:
    with start({**tiny_options, "worker": "process"}, 1000) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "loaded\n"
        (worker,) = children(script.pid)
        script.kill()
        script.communicate(timeout=60)
        wait_until(lambda: not alive(worker))


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            return b"octavo.executor.worker" in command.read()
    except OSError:
        return False
