"""A command that serves, as a process of its own: what it says is read as it comes, signals end it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import IO, Any

from tests.cli.conftest import Place
from tests.forked import Forked, pipe

WAIT_S = 30.0


class Serving:
    """`with Serving(place, "serve", "--port", "0") as serving:`"""

    def __init__(self, place: Place, *arguments: str, reads_lines: bool = True, **env: str) -> None:
        self._arguments, self._place, self._env, self._reads_lines = arguments, place, env, reads_lines
        self.out: list[str] = []
        self.err: list[str] = []
        self._said = threading.Condition()

    def __enter__(self) -> Serving:
        (out, out_end), (err, err_end) = pipe(), pipe()
        with out_end, err_end:
            env = self._place.env | self._env
            self._process = Forked(
                self._arguments,
                cwd=self._place.project,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out_end,
                stderr=err_end,
            )
        pairs = [(err, self.err)]
        if self._reads_lines:
            pairs.append((out, self.out))
        else:
            out.close()
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in pairs]
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait_end()

    def _read(self, stream: IO[bytes], lines: list[str]) -> None:
        with stream:
            for line in stream:
                with self._said:
                    lines.append(line.decode())
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()

    @property
    def text(self) -> str:
        return "".join((*self.out, *self.err))

    def wait_said(self, pattern: str) -> re.Match[str]:
        with self._said:
            found = self._said.wait_for(lambda: re.search(pattern, self.text), WAIT_S)
        assert found, f"it did not say {pattern!r}, but: {self.text}"
        return found

    @property
    def port(self) -> int:
        return int(self.wait_said(r"Listening on http://127\.0\.0\.1:(\d+)")[1])

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_end(self) -> int:
        code = self._process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return code

    def ask(self, text: str, *, key: str = "", session: str = "", **fields: Any) -> Answer:
        """Ask for a message, streamed. The answer is there as soon as its head is."""
        body = {"model": "claude-x", "max_tokens": 100, "stream": True, **fields}
        body["messages"] = [{"role": "user", "content": text}]
        headers = {"x-session-id": session} if session else {}
        if key:
            headers["authorization"] = f"Bearer {key}"
        return self.request("POST", "/v1/messages", body, headers)

    def request(self, method: str, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request(method, path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
        return Answer(connection)


class Answer:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status

    def read_until(self, text: str) -> None:
        read = b""
        while text.encode() not in read:
            line = self._response.readline()
            assert line, f"{text!r} did not come, but: {read!r}"
            read += line

    def end(self) -> int:
        """Read to the end; the status."""
        self.rest()
        return self.status

    def rest(self) -> str:
        try:
            return self._response.read().decode()
        finally:
            self._connection.close()

    def close(self) -> None:
        self._connection.close()
