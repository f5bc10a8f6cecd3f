"""The extension is what its stubs say, and the channel to a worker carries what it is given."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from octavo import _core
from octavo.executor.channel import Channel, PeerDiedError, SharedMemory, private_buffers


def test_stubs_and_extension_agree() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "octavo._core"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


METRICS = '{"model": "test", "block_bytes": 1, "cache_config": {}, "max_tenants": 0}'
LIMITS = {
    "block_size": 16,
    "num_blocks": 64,
    "groups": [],
    "max_model_len": 512,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 128,
    "long_prefill_token_threshold": 0,
    "max_num_queued_reqs": 10,
    "max_logprobs": 5,
    "vocab_size": 1000,
    "watermark": 0.0,
    "enable_prefix_caching": True,
    "max_pinned_share": 0.5,
    "host_blocks": 0,
    "host_load_tokens": 0.0,
    "disk_tier": False,
    "tenant_weights": [],
    "policy": "fcfs",
    "pipeline_depth": 2,
}


def test_columns_lie_apart_and_aligned() -> None:
    layout = _core.frame_layout(LIMITS)
    for columns, size in (
        (layout["frame"], layout["frame_bytes"]),
        (layout["result"], layout["result_bytes"]),
    ):
        end = 0
        for _, dtype, offset, shape in columns:
            assert offset % 64 == 0
            assert offset >= end
            count = 1
            for extent in shape:
                count *= extent
            end = offset + count * (8 if dtype == "int64" else 4)
        assert end <= size


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="block_size"):
        _core.frame_layout({**LIMITS, "block_size": 0})
    with pytest.raises(ValueError, match="unknown scheduling policy lifo"):
        _core.frame_layout({**LIMITS, "policy": "lifo"})


def test_an_idle_engine_plans_nothing_and_stops() -> None:
    layout = _core.frame_layout(LIMITS)
    engine = _core.EngineHandle(LIMITS, METRICS)
    (frame,) = private_buffers(1, layout["frame_bytes"], layout["result_bytes"]).frames
    assert engine.plan(frame, 0.0) == _core.Planned.Idle
    with pytest.raises(ValueError, match="read-only"):
        engine.plan(bytes(frame), 0.0)
    with pytest.raises(RuntimeError, match="no step is in flight"):
        engine.commit(bytearray(7))
    engine.stop()
    assert engine.plan(frame, 60.0) == _core.Planned.Stopped
    assert engine.failure() is None


def test_doorbells_and_messages_keep_their_order() -> None:
    here, there = Channel.pair()
    here.ring(1)
    here.send({"text": "x" * 100_000})
    here.ring(0)
    assert there.receive() == 1
    assert there.receive() == {"text": "x" * 100_000}
    assert there.wait(0)
    assert there.receive() == 0
    assert not there.wait(0)
    here.close()
    with pytest.raises(PeerDiedError):
        there.receive()
    there.close()


def test_a_receiver_is_woken_by_the_end_of_the_other_side() -> None:
    here, there = Channel.pair()
    failed: list[BaseException] = []

    def receive() -> None:
        try:
            there.receive()
        except PeerDiedError as error:
            failed.append(error)

    receiver = threading.Thread(target=receive)
    receiver.start()
    here.close()
    receiver.join()
    there.close()
    assert failed


def test_step_memory_is_shared_and_does_not_overlap() -> None:
    memory = SharedMemory()
    ours = memory.buffers(2, 128, 64)
    theirs = SharedMemory(memory.fileno()).buffers(2, 128, 64)
    for number, buffer in enumerate([*ours.frames, *ours.results], 1):
        buffer[:] = bytes([number]) * len(buffer)
    seen = [bytes(buffer) for buffer in (*theirs.frames, *theirs.results)]
    assert seen == [bytes([n]) * size for n, size in ((1, 128), (2, 128), (3, 64), (4, 64))]
    memory.close()
