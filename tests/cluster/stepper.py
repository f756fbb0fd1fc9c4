# ruff: noqa: T201 - its output is what it is for
"""A rank whose every process counts for as long as it may run: stepper.py DIRECTORY NUMBER DEPTH.

Each process of the chain writes its count to a file of its own, so that a test can see from there
whether it runs. ``spawner`` as DEPTH starts one short process after another instead.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

directory, number, depth = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

if depth == "spawner":
    print("ready", flush=True)
    while True:
        subprocess.run(["/bin/true", number], check=True)
if int(depth) > 1:
    subprocess.Popen([sys.executable, "-I", "-S", __file__, directory, number, str(int(depth) - 1)])
count = 0
while True:
    count += 1
    (directory / f"{os.getpid()}.count").write_text(str(count))
    if count == 1:
        print("ready", flush=True)
    time.sleep(0.005)
