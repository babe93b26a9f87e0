"""`ordercast board` in a process of its own, that can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
name = "{name}"
listen = "127.0.0.1:{port}"
data = "{name}"
control = "{name}.sock"
[group.board]
family = "feed"
options = {{ beat = "300ms" }}
"""


class BoardProcess:
    """Its node and its page are at the same places whenever it is started."""

    def __init__(self, folder: Path, name: str, listen: int, web: int, *more: str) -> None:
        self.folder, self.name, self.web = folder, name, web
        self._more = more
        (folder / f"{name}.toml").write_text(SETTINGS.format(name=name, port=listen), "utf-8")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> BoardProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web}/"

    def start(self) -> None:
        """Its page can be asked for."""
        paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        words = ["board", "--settings", f"{self.name}.toml", "--web", f"127.0.0.1:{self.web}"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ordercast", *words, *self._more],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = []
        while line := self._process.stderr.readline():
            said.append(line)
            if f" shows board at {self.url[:-1]}; Ctrl-C leaves" in line:
                return
        raise AssertionError(f"{self.name} has ended: {said}")

    def until_placed(self, parent: str) -> None:
        """It has this parent, or is the root."""
        with urlopen(f"{self.url}events", timeout=60) as stream:
            for line in stream:
                if line.startswith(b'data: {"node":'):
                    place = json.loads(line.removeprefix(b"data: "))["place"]
                    if place["parent"] == parent and (parent or place["is_root"]):
                        return
        raise AssertionError(f"{self.name} has ended")

    def post(self, text: str, below: str = "") -> str:
        """As a program does. The key of the post."""
        body = json.dumps({"author": "program", "text": text, "reply_to": below}).encode()
        asked = Request(f"{self.url}post", body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=60) as answer:
            key: str = json.load(answer)["key"]
        return key

    def kill(self) -> None:
        """With SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def interrupt(self) -> tuple[int, str]:
        """With SIGINT, as Ctrl-C does: what it exits with, and what it says."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        _, said = self._process.communicate(timeout=60)
        code = self._process.returncode
        self._process = None
        return code, said
