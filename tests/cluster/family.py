# ruff: noqa: T201 - its output is what it is for
"""A rank that leaves processes in every way a trainer does. Run: family.py KIND NUMBER.

Every process of the family shows NUMBER in its command line, so that a test can find it by a way
that the code under test does not use.
"""

import os
import signal
import sys
import time

kind, number = sys.argv[1], sys.argv[2]


def sleep(environment=os.environ):
    os.execve("/bin/sleep", ["sleep", number], environment)


def ready():
    print("ready", flush=True)


def forked(function):
    if os.fork() == 0:
        try:
            function()
        finally:
            os._exit(0)


def daemon():
    """As the book says, and with nothing left to be known by."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.closerange(0, 256)
    sleep({})


def in_session():
    os.setsid()
    sleep()


def bomb():
    """Fifty new processes a second, each in a session of its own."""
    while True:
        forked(in_session)
        time.sleep(0.02)


def chain():
    """Always one process, never the same for long."""
    while True:
        if os.fork():
            os._exit(0)


if kind == "plain":
    ready()
    sleep()
elif kind == "tree":
    forked(in_session)
    forked(lambda: forked(sleep))
    forked(daemon)
    ready()
    sleep()
elif kind == "bomb":
    for _ in range(3):
        forked(bomb)
    time.sleep(0.1)
    ready()
    sleep()
elif kind == "chain":
    forked(chain)
    ready()
    sleep()
elif kind == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    forked(sleep)
    ready()
    sleep()
elif kind == "polite":
    forked(sleep)
    # Waited for, not handled: a handler can miss a signal that comes just before a system call.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    ready()
    signal.sigwait([signal.SIGTERM])
elif kind == "witness":  # ends at SIGTERM, and so that its child can say if it got one too
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def witness():
        ready()
        signal.sigwait([signal.SIGTERM])
        print("child got it", flush=True)

    forked(witness)
    ready()
    signal.sigwait([signal.SIGTERM])
elif kind == "nested":  # a child, its child, and a younger child; clocks tick every 10 ms
    forked(lambda: (time.sleep(0.05), forked(sleep), sleep()))
    time.sleep(0.15)
    forked(sleep)
    ready()
    sleep()
elif kind == "straggler":
    forked(daemon)
    ready()
elif kind == "brief":  # its child outlives it, but not by much
    forked(lambda: time.sleep(0.3))
    ready()
elif kind == "exit":
    sys.exit(int(sys.argv[3]))
elif kind == "environment":
    print(sorted(os.environ), os.getcwd(), os.getsid(0) == os.getpid(), flush=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        print(number.name, int(signal.getsignal(number) in (signal.SIG_IGN,)), flush=True)
    print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1], flush=True)
