"""Install packages by one call of pip, with a short progress report: `make setup`.

    python tools/install.py LOG ARGUMENTS OF PIP INSTALL

pip prints three lines per package, or none at all with --quiet. Here a line is shown for each large
package, and for every 25 packages found. The whole output of pip is in the file LOG, whose end is
shown if it fails.
"""

import os
import re
import subprocess
import sys
from collections import deque
from pathlib import Path

EVERY = 25  # packages between two lines
LARGE = 50  # MB
TAIL = 20  # lines of the log that are shown after a failure
_PACKAGE = re.compile(r"(?:Collecting|Processing) (\S+)")
_DOWNLOAD = re.compile(r"\s*Downloading (\S+) \((\d+)(?:\.\d+)? (MB|GB)\)")


class Progress:
    """Turns the output of pip into the few lines that are shown."""

    def __init__(self) -> None:
        self.packages = 0

    def said(self, line: str) -> str | None:
        """What to show for a line of pip, if anything."""
        if _PACKAGE.match(line):
            self.packages += 1
            if self.packages % EVERY == 0:
                return f"{self.packages} packages found"
        download = _DOWNLOAD.match(line)
        if download is not None:
            file, size, unit = download.groups()
            if unit == "GB" or int(size) >= LARGE:
                package = file.rsplit("/", 1)[-1].split("-")[0]
                return f"downloading {package} ({size} {unit})"
        if line.startswith("Installing collected packages:"):
            return f"installing {line.count(',') + 1} packages"
        return None


def main(log: Path, arguments: list[str]) -> int:
    """Run pip and return its exit code."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", *arguments]
    progress = Progress()
    tail: deque[str] = deque(maxlen=TAIL)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        log.open("w") as file,
        subprocess.Popen(command, text=True, env=environment, **streams) as pip,
    ):
        for line in pip.stdout or ():
            file.write(line)
            tail.append(line)
            shown = progress.said(line)
            if shown is not None:
                print(f"  {shown}", flush=True)
        code = pip.wait()
    if code:
        print("".join(tail), end="", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
