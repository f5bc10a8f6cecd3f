"""The process that computes: `python -m octavo.executor.worker CHANNEL MEMORY HOST` (descriptors).

It loads the model, says what it found, maps the step memory, and then computes one frame for each doorbell.
It ends when the server process does; what goes wrong goes back as one line, with a traceback beside it.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
import traceback
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from octavo.executor.channel import Channel, PeerDiedError, SharedMemory
from octavo.executor.machine import drop_start_up_pages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.boundary import FrameLayout
    from octavo.executor.channel import Buffers
    from octavo.executor.frame import Frame, StepResult
    from octavo.executor.pending import Pending
    from octavo.executor.runner import Runner, RunnerConfig


def main(arguments: list[str]) -> int:
    """Serve steps until the channel closes."""
    channel = Channel.inherited(int(arguments[0]))
    memory, host = SharedMemory(int(arguments[1])), SharedMemory(int(arguments[2]))
    threading.Thread(target=_leave_with_server, args=(channel.fileno(),), daemon=True).start()
    phase = "loading"
    # What is made while modules and weights are loaded stays: looking through it again and again takes time.
    gc.disable()
    try:
        runner = _load(channel)
        phase = "computing"
        _serve(channel, memory, host, runner)
    except PeerDiedError:
        return 0
    except Exception as error:
        report = {"message": one_line(error), "traceback": traceback.format_exc(), "while": phase}
        channel.send({"type": "error", **report})
        return 1
    return 0


def one_line(error: BaseException) -> str:
    """An error as one readable line."""
    text = " ".join(str(error).split())
    return text if text and isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: {text}"


def runner_config(fields: Mapping[str, Any]) -> RunnerConfig:
    """RunnerConfig from its fields and `cpu_kvcache_bytes`, which counts on a CPU only."""
    # Both import torch: seconds.
    import torch  # noqa: PLC0415

    from octavo.executor.runner import RunnerConfig  # noqa: PLC0415

    known = dict(fields)
    cpu_bytes = known.pop("cpu_kvcache_bytes")
    on_cpu = known["device"] == "cpu" or (known["device"] == "auto" and not torch.cuda.is_available())
    if known["kv_cache_memory_bytes"] is None and on_cpu:
        known["kv_cache_memory_bytes"] = cpu_bytes
    return RunnerConfig(**known)


def step_views(buffers: Buffers, layout: FrameLayout) -> list[tuple[Frame, StepResult]]:
    """Columns of each frame and result, as tensors."""
    from octavo.executor.frame import Frame, StepResult  # noqa: PLC0415  (imports torch)

    frames = [Frame(buffer, layout["frame"]) for buffer in buffers.frames]
    results = [StepResult(buffer, layout["result"]) for buffer in buffers.results]
    return list(zip(frames, results, strict=True))


def _load(channel: Channel) -> Runner:
    config = runner_config(_message(channel, "load")["config"])
    from octavo.executor.runner import Runner  # noqa: PLC0415  (imports torch)

    runner = Runner(config)
    facts = runner.load(lambda text: channel.send({"type": "progress", "text": text}))
    drop_start_up_pages()
    if runner.own_core is not None:
        os.sched_setaffinity(0, {runner.own_core})
    channel.send({"type": "loaded", "facts": asdict(facts)})
    return runner


def _serve(channel: Channel, memory: SharedMemory, host: SharedMemory, runner: Runner) -> None:
    start = _message(channel, "start")
    layout: FrameLayout = start["layout"]
    steps = step_views(memory.buffers(start["depth"], layout["frame_bytes"], layout["result_bytes"]), layout)
    if start["host"]["slots"]:
        runner.attach_host(host.map(start["host"]["bytes"]), start["host"]["slots"])
    gc.freeze()
    gc.enable()
    channel.send({"type": "started"})
    if start["overlap"]:
        _compute_overlapped(channel, runner, steps)
    while True:
        index = _doorbell(channel)
        runner.execute(*steps[index])
        channel.ring(index)


def _compute_overlapped(channel: Channel, runner: Runner, steps: list[tuple[Frame, StepResult]]) -> None:
    """For devices that work beside the processor: launch what has come before reading results back."""
    launched: deque[tuple[int, Pending]] = deque()
    while True:
        if not launched or (len(launched) < len(steps) and channel.wait(0)):
            index = _doorbell(channel)
            launched.append((index, runner.launch(steps[index][0])))
        else:
            index, pending = launched.popleft()
            pending.write(steps[index][1])
            channel.ring(index)


def _doorbell(channel: Channel) -> int:
    index = channel.receive()
    if not isinstance(index, int):
        raise PeerDiedError(f"unexpected message {index}")
    return index


def _message(channel: Channel, kind: str) -> dict[str, Any]:
    message = channel.receive()
    if not isinstance(message, dict) or message["type"] != kind:
        raise PeerDiedError(f"expected {kind}, not {message}")
    return message


def _leave_with_server(descriptor: int) -> None:
    """End at once when the other side of the channel closes, whatever is being computed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
