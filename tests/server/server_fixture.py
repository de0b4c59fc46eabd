"""A real server on a free loopback port, and a client without conveniences. Standard library only."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.abspath(os.environ["NANOVLLM_PROGRAM"])
MODEL = "models/tiny-qwen3"
SECONDS = int(os.environ.get("NANOVLLM_SERVER_SECONDS", "120"))  # a server ends by itself after this long
JSON = {"Content-Type": "application/json"}


class Server:
    def __init__(self, *flags, env=None, model=MODEL):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            ["timeout", "-k", "5", str(SECONDS), PROGRAM, "serve", "-m", model, "--port", "0", *flags],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, **(env or {})}, preexec_fn=os.setsid)
        self.port = self._wait_ready()

    def output(self):
        # The server writes at the file's position, which seek() would move for it too.
        log = self.log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode()

    def _wait_ready(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            ready = re.search(r"serving \S+ at https?://\S+:(\d+)", self.output())
            if ready:
                return int(ready.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        output = self.output()
        self.log.close()
        raise RuntimeError("the server did not start: " + output)

    def pid(self):
        """The server's own: the process is `timeout`."""
        out = subprocess.run(["ps", "--ppid", str(self.process.pid), "-o", "pid="],
                             capture_output=True, text=True, check=True)
        return int(out.stdout.split()[0])

    def terminate(self):
        os.kill(self.pid(), signal.SIGTERM)

    def wait(self):
        return self.process.wait(timeout=60)

    def stop(self):
        """Ends it and says what is wrong with how it ended."""
        if self.process.poll() is None:
            self.terminate()
        code = self.wait()
        output = self.output()
        self.log.close()
        if code != 0 or "Sanitizer" in output:
            return f"exit code {code}: {output[-4000:]}"
        return None

    # ---- requests ----

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body as bytes)"""
        connection = self.connect()
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        try:
            connection.request(method, path, body, JSON if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def post(self, path, body, headers=None):
        """(status, parsed JSON)"""
        status, _, text = self.request("POST", path, body, headers)
        return status, json.loads(text)

    def get(self, path, headers=None):
        status, _, text = self.request("GET", path, None, headers or {})
        return status, json.loads(text)

    def stream(self, path, body):
        """The events of a stream, without [DONE], which must be the last."""
        status, headers, text = self.request("POST", path, {**body, "stream": True})
        assert status == 200, (status, text)
        assert headers["Content-Type"].startswith("text/event-stream"), headers["Content-Type"]
        events = text.decode().split("\n\n")
        assert events[-1] == "", events[-1]
        events = [event for event in events[:-1] if event != ": ping"]  # a slow machine is silent for long
        assert all(event.startswith("data: ") for event in events), events
        events = [event[len("data: "):] for event in events]
        assert events[-1] == "[DONE]", events[-1]
        return [json.loads(event) for event in events[:-1]]

    def raw(self, data, timeout=20):
        """What comes back for these bytes until the server closes; None: it did not."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            answer = b""
            try:
                while True:
                    got = connection.recv(65536)
                    if not got:
                        return answer
                    answer += got
            except socket.timeout:
                return None
            except ConnectionResetError:
                return answer

    def metric(self, name, headers=None):
        _, _, text = self.request("GET", "/metrics", None, headers or {})
        total = 0.0
        found = False
        for line in text.decode().splitlines():
            if line.startswith(name + "{"):
                total += float(line.rsplit(" ", 1)[1])
                found = True
        assert found, name
        return total

    def wait_metric(self, name, value, seconds=20, headers=None):
        end = time.monotonic() + seconds
        while self.metric(name, headers) != value:
            assert time.monotonic() < end, f"{name} is {self.metric(name, headers)}, want {value}"
            time.sleep(0.02)

    def num_descriptors(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))


class ServerTest(unittest.TestCase):
    """One server for the tests of a class; it must end well after them."""

    flags = ()
    env = None
    model = MODEL

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags, env=cls.env, model=cls.model)

    @classmethod
    def tearDownClass(cls):
        fault = cls.server.stop()
        if fault:
            raise AssertionError(fault)

    def check_error(self, answer, status, param=None, code=None):
        got, body = answer
        self.assertEqual(got, status, body)
        self.assertEqual(set(body["error"]), {"message", "type", "param", "code"})
        self.assertTrue(body["error"]["message"])
        self.assertEqual(body["error"]["param"], param, body)
        if code:
            self.assertEqual(body["error"]["code"], code, body)


def run_all(functions):
    """Runs them at once; what they return, in their order. An exception is one of the results."""
    results = [None] * len(functions)

    def run(i):
        try:
            results[i] = functions[i]()
        except Exception as fault:  # pylint: disable=broad-except
            results[i] = fault

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main():
    unittest.main(argv=sys.argv, verbosity=1)
