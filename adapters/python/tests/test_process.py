"""What a process does that runs for long: it forks, keeps little memory, and ends when it is interrupted."""

import multiprocessing
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time

import falchion
import numpy as np
import pytest
from reference import dtype, ml_dtypes

A, B = np.ones((200, 64), np.float16), np.ones((64, 300), np.float16)


def product(number):
    """An epilogue of which no other call knows, in a grid of several CTAs."""
    return float(falchion.matmul(A, B, epilogue=f"acc*{number}.5")[199, 299])


def forked(work):
    """The exit status of a forked process that does some work within 30 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    return os.waitpid(child, 0)[1]


# Newer versions of Python warn of any fork where there are threads.
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.skipif(ml_dtypes is None, reason="no ml_dtypes")
def test_results_have_the_format_of_their_own_call():
    """Calls of one text, of which each result has another format: each is written by its own kernel."""
    a, b = (np.ones(shape, dtype("bfloat16")) for shape in [(4, 21), (21, 17)])
    for name in ["bfloat16", "float16", "bfloat16"]:
        out = np.zeros((4, 17), dtype(name))
        falchion.matmul(a, b, epilogue="acc + 1.25", out=out)
        assert (out.astype(np.float32) == dtype(name).type(22.25).astype(np.float32)).all(), name


@forks
def test_forked_processes_multiply():
    assert product(1) == 96

    def grandchild():
        assert product(2) == 160 and forked(lambda: product(3)) == 0

    assert forked(grandchild) == 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(product, range(4)).get(timeout=60) == [32, 96, 160, 224]


@forks
def test_forks_while_other_threads_choose_kernels():
    done = threading.Event()

    def choose():
        number = 0
        while not done.is_set():
            falchion.plan(64 + 8 * number, 64, 64, epilogue=f"relu(acc*{number}.25)")
            number += 1

    threads = [threading.Thread(target=choose) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        statuses = [forked(lambda: product(10 + i)) for i in range(8)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 8


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_memory_is_given_back():
    a, b, bias = A[:16], B[:, :32], np.ones(32, np.float32)
    q = np.ones((1, 1, 200, 64), np.float16)
    calls = [
        # The programs of some kernels are kept, and of some epilogues what was considered: 3 MB each.
        lambda i: falchion.matmul(a, b, epilogue=f"relu(acc*{i}.125 + bias{i}[n])", **{f"bias{i}": bias}),
        lambda i: falchion.attention(q[:, :, :4], q[:, :, : 4 + i], q[:, :, : 4 + i]),
    ]
    for call in calls:
        call(0)
        before = resident()
        for i in range(1, 120):
            call(i)
        grown = resident() - before
        assert grown < 60, f"{grown:.0f} MB more"


LONG = """
import falchion, numpy as np, signal, sys
# Whoever runs the tests in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
a = np.ones((2048, 16384), np.float16)
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("call", ["falchion.matmul(a, a.T)", "falchion.check(a, a.T)", "falchion.attention(*[a.reshape(1, 1, -1, 64)] * 3)"])
def test_an_interrupt_ends_a_call(call):
    process = subprocess.Popen([sys.executable, "-c", LONG.format(call=call)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        assert process.communicate(timeout=30)[0] == "interrupted\n" and process.returncode == 0
        assert time.monotonic() - start < 2
    finally:
        process.kill()


def test_a_terminal_shows_the_progress():
    main, end = pty.openpty()
    program = LONG.format(call="falchion.matmul(a, a.T)")
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    words, start = "", time.monotonic()
    try:
        while "s left" not in words and time.monotonic() - start < 60 and select.select([main], [], [], 60)[0]:
            words += os.read(main, 1000).decode()
        assert "falchion: emulating: " in words and "%, about " in words
    finally:
        process.kill()
        process.wait()
        os.close(main)
