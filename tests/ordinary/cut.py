"""Makes a recorded output fit for a test: names of this machine go, and of each progress bar a few states stay.

usage: cut.py FOLDER-OF-THE-ENVIRONMENT < recorded > kept
"""

import getpass
import pathlib
import re
import socket
import sys

BAR_STATES = 6
MOST_ALIKE = 12


def without_names(text: str, environment: str) -> str:
    """Paths, host, user and addresses of this machine, replaced by what any machine has."""
    here = str(pathlib.Path(__file__).resolve().parent)
    host = socket.gethostname()
    for name, other in [(environment, "/opt/venv"), (here, "/home/user/train"), (str(pathlib.Path.cwd()), "/home/user/run"), (socket.getfqdn(), "node0"), (host, "node0")]:
        text = text.replace(name, other)
    text = re.sub(r"/[\w./-]*/lib/python(3\.\d+)/(?!site-packages)", r"/usr/lib/python\1/", text)
    text = re.sub(rf"\b{getpass.getuser()}\b", "user", text)
    addresses = {address[4][0] for address in socket.getaddrinfo(host, None)} - {"127.0.0.1", "::1"}
    for address in addresses:
        text = text.replace(address, "10.0.0.2")
    return text


def short_bar(line: str) -> str:
    """The first states and the last of a line that a bar overwrote."""
    states = line.split("\r")
    return line if len(states) <= BAR_STATES else "\r".join(states[: BAR_STATES - 1] + states[-1:])


def without_repetitions(lines: list[str]) -> list[str]:
    """Lines that differ in their numbers only, a dozen of each."""
    seen: dict[str, int] = {}
    kept = []
    for line in lines:
        shape = re.sub(r"[0-9]+", "0", line)
        seen[shape] = seen.get(shape, 0) + 1
        if seen[shape] <= MOST_ALIKE:
            kept.append(line)
    return kept


def main():
    text = sys.stdin.buffer.read().decode(errors="replace")
    lines = [short_bar(line) for line in without_names(text, sys.argv[1]).split("\n")]
    sys.stdout.buffer.write("\n".join(without_repetitions(lines)).encode())


if __name__ == "__main__":
    main()
