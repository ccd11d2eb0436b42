"""Run a command next to busy processes that compete for the cores: `make test-load`.

python tools/under_load.py --busy 2 -- COMMAND
"""

import argparse
import multiprocessing
import subprocess
import sys


def keep_busy() -> None:
    """Keep a core busy."""
    while True:
        pass


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=2, help="how many busy processes")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    loops = [multiprocessing.Process(target=keep_busy, daemon=True) for _ in range(options.busy)]
    for loop in loops:
        loop.start()
    try:
        return subprocess.run(options.command, check=False).returncode
    finally:
        for loop in loops:
            loop.kill()


if __name__ == "__main__":
    sys.exit(main())
