"""deploy/haproxy.cfg with three servers: a killed one, a draining one, prefixes that stay together."""

import csv
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_fixture import ROOT, SECONDS, JSON, Server, main

SKIP = 77  # as CTest is told
NUM_CLIENTS = 8
NUM_REQUESTS = 120


class Balancer:
    def __init__(self, servers):
        self.folder = tempfile.TemporaryDirectory()
        # HAProxy takes over a bound socket, so no other program can take its port.
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        self.port = bound.getsockname()[1]
        env = {**os.environ, "NANOVLLM_BIND": f"fd@{bound.fileno()}"}
        for number, server in enumerate(servers, 1):
            env[f"NANOVLLM_{number}"] = f"127.0.0.1:{server.port}"
        # A second file adds HAProxy's control socket, which the first one does not need.
        self.control = os.path.join(self.folder.name, "control")
        extra = os.path.join(self.folder.name, "extra.cfg")
        with open(extra, "w", encoding="utf-8") as file:
            file.write(f"global\n    stats socket {self.control} level admin\n")
        self.process = subprocess.Popen(
            ["timeout", "-k", "5", str(SECONDS), "haproxy", "-f", os.path.join(ROOT, "deploy/haproxy.cfg"), "-f", extra],
            env=env, pass_fds=[bound.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT)
        bound.close()
        end = time.monotonic() + 20
        while self.request("GET", "/ready")[0] != 200:
            assert time.monotonic() < end, "HAProxy finds no server"
            time.sleep(0.05)

    def servers(self):
        """HAProxy's own rows about the servers, by column."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(20)
            control.connect(self.control)
            control.sendall(b"show stat\n")
            text = b"".join(iter(lambda: control.recv(65536), b"")).decode()
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        return [row for row in rows if row["pxname"] == "servers" and row["svname"] != "BACKEND"]

    def wait_until_idle(self):
        """Waits until every server is up and HAProxy counts no request: it counts one for a moment
        after the client has its answer, and a counted request may send the next one elsewhere."""
        end = time.monotonic() + 20
        while any(row["scur"] != "0" or not row["status"].startswith("UP") for row in self.servers()):
            assert time.monotonic() < end, f"HAProxy's servers are not idle: {self.servers()}"
            time.sleep(0.005)

    def request(self, method, path, body=None):
        """(status, body); (None, what came) of an answer that was cut; status 0: no connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body if body is None else json.dumps(body), JSON)
            answer = connection.getresponse()
        except OSError as fault:
            return 0, str(fault).encode()
        try:
            return answer.status, answer.read()
        except (http.client.IncompleteRead, OSError) as fault:
            return None, getattr(fault, "partial", b"")
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.folder.cleanup()


def outcome(status, text, streamed):
    """answered, or how the client learns that it was not."""
    if status is None:
        return "cut"
    if status != 200:
        return f"status {status}" if b'"error"' in text else f"status {status} without an error: {text!r}"
    if streamed and not text.endswith(b"data: [DONE]\n\n"):
        return f"a stream that ends early without a sign: {text[-100:]!r}"
    return "answered"


class Balanced(unittest.TestCase):
    def setUp(self):
        self.servers = [Server("--log", "none") for _ in range(3)]
        self.balancer = Balancer(self.servers)

    def tearDown(self):
        self.balancer.stop()
        faults = [server.stop() for server in self.servers if server.process.poll() is None]
        for server in self.servers:
            server.log.close()
        self.assertEqual([fault for fault in faults if fault], [])

    def completion(self, prompt, max_tokens, stream):
        body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "stream": stream}
        return outcome(*self.balancer.request("POST", "/v1/completions", body), stream)

    def load(self, begun, results):
        def client(first):
            for number in range(first, NUM_REQUESTS, NUM_CLIENTS):
                results.append(self.completion(f"{number} and so on", 60, number % 2 == 0))
                if len(results) > NUM_REQUESTS / 4:
                    begun.set()

        threads = [threading.Thread(target=client, args=(i,)) for i in range(NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        return threads

    def during_load(self, what):
        """What became of the requests while `what` happened to a server."""
        begun, results = threading.Event(), []
        threads = self.load(begun, results)
        begun.wait()
        what(self.servers[0])
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), NUM_REQUESTS)
        return results

    def test_a_killed_server_loses_no_request_in_silence(self):
        results = self.during_load(lambda server: os.kill(server.pid(), signal.SIGKILL))
        allowed = {"answered", "cut", "status 502", "status 503"}
        self.assertEqual(set(results) - allowed, set())
        # At most what it was working on: streams are cut, all else is tried again elsewhere.
        self.assertLessEqual(len([one for one in results if one != "answered"]), NUM_CLIENTS)
        for number in range(20):
            self.assertEqual(self.completion(f"after {number}", 4, False), "answered")

    def test_a_draining_server_loses_nothing(self):
        results = self.during_load(lambda server: server.terminate())
        self.assertEqual(set(results), {"answered"})
        self.assertEqual(self.servers[0].wait(), 0)

    def test_requests_that_begin_alike_go_to_one_server(self):
        prefix = "You are a helpful assistant who answers in few words. " * 8
        for number in range(12):
            self.balancer.wait_until_idle()
            messages = [{"role": "system", "content": prefix}, {"role": "user", "content": f"{number}?"}]
            status, text = self.balancer.request(
                "POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 2})
            self.assertEqual(status, 200, text)
        shares = sorted(server.metric("nanovllm:requests_added_total") for server in self.servers)
        self.assertEqual(shares, [0, 0, 12])
        for number in range(24):
            self.assertEqual(self.completion(f"prompt {number}", 2, False), "answered")
        self.assertTrue(all(server.metric("nanovllm:requests_added_total") for server in self.servers))

    def test_without_a_server_the_client_gets_an_error_it_can_read(self):
        for server in self.servers:
            server.terminate()
            server.wait()
        status, text = self.balancer.request("POST", "/v1/completions", {"prompt": "a"})
        self.assertEqual(status, 503)
        self.assertEqual(json.loads(text)["error"]["code"], "no_server")


if __name__ == "__main__":
    if not shutil.which("haproxy"):
        print("skipped: there is no haproxy")
        sys.exit(SKIP)
    main()
