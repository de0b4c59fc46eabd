"""Clients that go away or do not read, full queues, the end of the server."""

import datetime
import json
import os
import re
import signal
import socket
import struct
import threading
import time
import unittest

from server_fixture import Server, ServerTest, main

PATH = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}


def begin(server, body, path=PATH, receive_buffer=None):
    """A request whose answer nobody has read yet."""
    text = json.dumps(body).encode()
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % (path.encode(), len(text)) + text)
    return connection


def read_all(connection):
    answer = b""
    while got := connection.recv(65536):
        answer += got
    connection.close()
    return answer


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Pacing(unittest.TestCase):
    def num_long_steps(self, *flags):
        """Of those that run a prompt of 1,500 tokens beside a stream, the steps of more than 1,024."""
        server = Server("--log", "none", "--no-enable-prefix-caching", *flags)
        try:
            stream = begin(server, {**LONG, "stream": True})
            got = b""
            while b"data: " not in got:
                got += stream.recv(4096)
            prompt = [300 + 7 * i % 200 for i in range(1500)]
            status, _ = server.post(PATH, {"prompt": prompt, "max_tokens": 1})
            self.assertEqual(status, 200)
            _, _, text = server.request("GET", "/metrics")
            reset(stream)
        finally:
            server.stop()
        counts = dict(re.findall(r'iteration_tokens_total_bucket{[^}]*le="([^"]*)"} (\d+)', text.decode()))
        return int(counts["+Inf"]) - int(counts["1024"] if "1024" in counts else counts["1024.0"])

    def test_long_prompts_are_in_parts_unless_that_is_off(self):
        self.assertEqual(self.num_long_steps(), 0)
        self.assertEqual(self.num_long_steps("--target-itl", "off"), 1)


class Clients(ServerTest):
    flags = ("--log", "none", "--max-num-seqs", "8")

    def check_rest(self, num_aborted, aborted_before):
        self.server.wait_metric("nanovllm:calls_in_flight", 0)
        self.server.wait_metric("vllm:num_requests_running", 0)
        self.server.wait_metric("vllm:num_requests_waiting", 0)
        self.server.wait_metric("vllm:kv_cache_usage_perc", 0)
        self.assertEqual(self.server.metric("nanovllm:requests_added_total"),
                         self.server.metric("nanovllm:requests_finished_total"))
        self.assertEqual(self.aborted() - aborted_before, num_aborted)

    def aborted(self):
        _, _, text = self.server.request("GET", "/metrics")
        (line,) = [line for line in text.decode().splitlines() if 'finished_reason="abort"' in line]
        return float(line.rsplit(" ", 1)[1])

    def test_gone_while_decoding(self):
        for stream in (True, False):
            for end in (socket.socket.close, reset):
                before = self.aborted()
                connection = begin(self.server, {**LONG, "stream": stream})
                self.server.wait_metric("vllm:num_requests_running", 1)
                end(connection)
                self.check_rest(1, before)

    def test_gone_while_queued(self):
        before = self.aborted()
        connections = [begin(self.server, LONG) for _ in range(20)]
        self.server.wait_metric("vllm:num_requests_running", 8)
        self.server.wait_metric("vllm:num_requests_waiting", 12)
        for connection in reversed(connections):
            connection.close()
        self.check_rest(20, before)

    def test_gone_with_several_prompts(self):
        before = self.aborted()
        connection = begin(self.server, {**LONG, "prompt": ["a", "b", "c"]})
        self.server.wait_metric("vllm:num_requests_running", 3)
        connection.close()
        self.check_rest(3, before)

    def test_storm(self):
        before = self.server.num_descriptors()
        for round_number in range(4):
            connections = [begin(self.server, {**LONG, "stream": i % 2 == 0}) for i in range(50)]
            time.sleep(0.05 * round_number)
            for i, connection in enumerate(connections):
                reset(connection) if i % 3 else connection.close()
        start = time.monotonic()
        status, _ = self.server.post(PATH, {**LONG, "max_tokens": 2})
        self.assertEqual(status, 200)
        self.server.wait_metric("nanovllm:calls_in_flight", 0)
        self.server.wait_metric("vllm:kv_cache_usage_perc", 0)
        self.server.wait_metric("nanovllm:http_connections", 1)
        self.assertLessEqual(self.server.num_descriptors(), before + 1)
        self.assertEqual(self.server.metric("nanovllm:requests_added_total"),
                         self.server.metric("nanovllm:requests_finished_total"))

    def test_slow_reader(self):
        """Who does not read loses his request; who asks beside him is answered."""
        prompts = ["Once upon a time"] * 7
        body = {**LONG, "prompt": prompts, "stream": True, "logprobs": 20}
        before = self.aborted()
        connection = begin(self.server, body, receive_buffer=4096)
        self.server.wait_metric("nanovllm:calls_in_flight", 1)
        self.assertEqual(self.server.post(PATH, {**LONG, "max_tokens": 2})[0], 200)
        self.server.wait_metric("nanovllm:calls_in_flight", 0, seconds=60)
        self.assertEqual(self.aborted() - before, 7)
        self.server.wait_metric("nanovllm:http_connections", 1)
        connection.close()

    def test_large_echo(self):
        """An echo with log-probabilities may be larger than what a slow reader may leave unread."""
        body = {"prompt": [10 + i * 7 % 900 for i in range(3000)], "n": 2, "max_tokens": 1, "echo": True,
                "logprobs": 20, "temperature": 0}
        _, whole = self.server.post(PATH, body)
        texts, tokens = ["", ""], [[], []]
        for event in self.server.stream(PATH, body):
            (choice,) = event["choices"]
            texts[choice["index"]] += choice["text"]
            tokens[choice["index"]] += choice["logprobs"]["top_logprobs"]
        self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
        self.assertEqual([len(each) for each in tokens], [3001, 3001])


class Queue(ServerTest):
    flags = ("--log", "none", "--max-num-seqs", "1", "--max-num-waiting", "2")

    def test_full_queue(self):
        connections = [begin(self.server, LONG)]
        self.server.wait_metric("vllm:num_requests_running", 1)
        connections += [begin(self.server, LONG) for _ in range(2)]
        self.server.wait_metric("vllm:num_requests_waiting", 2)
        for stream in (False, True):
            status, headers, text = self.server.request("POST", PATH, {**LONG, "stream": stream})
            self.assertEqual((status, headers["Retry-After"]), (503, "1"))
            self.assertEqual(json.loads(text)["error"]["code"], "queue_full")
        # It is not even read.
        status, _, text = self.server.request("POST", PATH, "{" + "x" * 1000)
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "queue_full"))
        status, _, text = self.server.request("POST", "/v1/messages", {})
        self.assertEqual((status, json.loads(text)["error"]["type"]), (503, "overloaded_error"))
        _, _, text = self.server.request("GET", "/metrics", None, {})
        rows = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if "reason=" in line)
        reason = lambda name, value: next(float(rows[row]) for row in rows
                                          if row.startswith("vllm:" + name) and f'reason="{value}"' in row)
        self.assertEqual([reason("admission_rejections_total", "max_num_queued_reqs"),
                          reason("admission_rejections_total", "max_num_queued_tokens"),
                          reason("num_requests_waiting_by_reason", "capacity"),
                          reason("num_requests_waiting_by_reason", "deferred")], [4, 0, 2, 0])
        for connection in connections:
            connection.close()
        self.server.wait_metric("nanovllm:calls_in_flight", 0)
        self.assertEqual(self.server.post(PATH, {**LONG, "max_tokens": 2})[0], 200)


class Preempted(ServerTest):
    flags = ("--log", "none", "--num-kvcache-blocks", "12", "--max-model-len", "128")

    def test_each_request_knows(self):
        body = {"prompt": "a", "n": 3, "max_tokens": 100, "ignore_eos": True}
        self.assertEqual(self.server.post(PATH, body)[0], 200)
        total = self.server.metric("vllm:num_preemptions_total")
        self.assertGreater(total, 0)
        self.assertEqual(self.server.metric("vllm:request_num_preemptions_sum"), total)
        self.assertEqual(self.server.metric("vllm:request_num_preemptions_count"), 3)


class Waiting(ServerTest):
    """Streams that wait for their first token."""

    flags = ("--log", "none", "--max-num-seqs", "1", "--ping-interval", "0.1")

    def setUp(self):
        self.first = begin(self.server, LONG)
        self.server.wait_metric("vllm:num_requests_running", 1)

    def tearDown(self):
        self.first.close()
        self.server.wait_metric("nanovllm:calls_in_flight", 0)

    def check_waiting(self, path, body, event):
        connection = begin(self.server, body, path)
        answer = b""
        while answer.count(b": ping\n\n") < 2:
            answer += connection.recv(65536)
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertIn(b"\r\nContent-Type: text/event-stream", answer)
        self.assertNotIn(b"data:", answer)  # the role's chunk comes with the first token
        self.first.close()
        while event not in answer:
            answer += connection.recv(65536)
        connection.close()

    def test_completion(self):
        self.check_waiting(PATH, {**LONG, "stream": True}, b'data: {"id":"cmpl-')

    def test_other_apis(self):
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "stream": True}
        self.check_waiting("/v1/chat/completions", chat, b'"role":"assistant"')
        self.setUp()
        self.check_waiting("/v1/messages", chat, b"event: message_start")
        self.setUp()
        self.check_waiting("/v1/responses", {"input": "Hi", "stream": True}, b"event: response.created")

    def test_what_is_refused_has_its_status(self):
        for body in ({**LONG, "temperature": -1}, {**LONG, "max_tokens": 5000}, {}):
            self.assertEqual(self.server.post(PATH, {**body, "stream": True})[0], 400)

    def test_gone(self):
        connection = begin(self.server, {**LONG, "stream": True})
        self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n"))
        self.server.wait_metric("vllm:num_requests_waiting", 1)
        connection.close()
        self.server.wait_metric("vllm:num_requests_waiting", 0)


class Deadline(ServerTest):
    flags = ("--log", "none", "--request-timeout", "0.2")

    def test_whole(self):
        status, body = self.server.post(PATH, {**LONG, "prompt": ["a"] * 20})
        self.assertEqual((status, body["error"]["code"]), (504, "request_timeout"))
        self.server.wait_metric("nanovllm:calls_in_flight", 0)
        self.server.wait_metric("vllm:kv_cache_usage_perc", 0)

    def test_stream(self):
        """After the head the error is an event."""
        *events, error = self.server.stream(PATH, {**LONG, "prompt": ["a"] * 20})
        self.assertTrue(events)
        self.assertEqual(error["error"]["code"], "request_timeout")
        self.server.wait_metric("nanovllm:calls_in_flight", 0)


class InTime(ServerTest):
    """A deadline that a busy machine keeps, too."""
    flags = ("--log", "none", "--request-timeout", "60")

    def test_in_time(self):
        self.assertEqual(self.server.post(PATH, {**LONG, "max_tokens": 2})[0], 200)


class End(unittest.TestCase):
    def wait_end(self, server, code=0):
        self.assertEqual(server.wait(), code, server.output())
        self.assertNotIn("Sanitizer", server.output())
        server.log.close()

    def test_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = Server()
            idle = socket.create_connection(("127.0.0.1", server.port))
            os.kill(server.pid(), number)
            self.wait_end(server)
            idle.close()

    def test_requests_go_on(self):
        server = Server("--shutdown-timeout", "100")
        connection = begin(server, {**LONG, "max_tokens": 1000, "stream": True})
        server.wait_metric("vllm:num_requests_running", 1)
        server.terminate()
        end = time.monotonic() + 20
        while server.get("/ready")[0] == 200:
            self.assertLess(time.monotonic(), end)
        status, headers, text = server.request("POST", PATH, LONG)
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "shutting_down"))
        self.assertIn("Retry-After", headers)
        answer = read_all(connection)
        self.assertIn(b'"finish_reason":"length"', answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
        self.wait_end(server)

    def test_timeout(self):
        server = Server("--shutdown-timeout", "0")
        connection = begin(server, {**LONG, "prompt": ["a"] * 20})
        server.wait_metric("vllm:num_requests_running", 20)
        server.terminate()
        answer = read_all(connection)
        choices = json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"]
        self.assertEqual({choice["finish_reason"] for choice in choices}, {"abort"})
        self.wait_end(server)

    def test_second_signal(self):
        server = Server()
        connection = begin(server, {**LONG, "prompt": ["a"] * 200})
        server.wait_metric("vllm:num_requests_running", 200)
        pid = server.pid()
        os.kill(pid, signal.SIGTERM)
        while server.get("/ready")[0] == 200:
            pass
        os.kill(pid, signal.SIGTERM)
        self.wait_end(server, -signal.SIGTERM)  # `timeout` ends as its program did
        connection.close()

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            with self.assertRaisesRegex(RuntimeError, "cannot listen on 127.0.0.1 port .*in use"):
                Server("--port", str(other.getsockname()[1]))

    def check_time(self, text):
        """It is a time of the last hour, in UTC."""
        time_of = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
        age = datetime.datetime.now(datetime.timezone.utc) - time_of
        self.assertTrue(-1 < age.total_seconds() < 3600, text)

    def test_busy(self):
        """Who stops a server that works is told what it waits for, and how to stop that too."""
        for number, name in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "signal")):
            server = Server("--shutdown-timeout", "0.1", "--log", "none")
            connection = begin(server, {**LONG, "prompt": ["a"] * 20})
            server.wait_metric("vllm:num_requests_running", 20)
            os.kill(server.pid(), number)
            read_all(connection)
            self.assertEqual(server.wait(), 0)
            lines = server.output().splitlines()
            stopping = f"stopping: waiting up to 0.1 seconds for 1 request; a second {name} ends at once"
            self.assertEqual([line.split("nanovllm: ")[1] for line in lines[2:]],
                             [stopping, "the time is over: 1 request is aborted"])
            server.log.close()

    def test_text_log(self):
        server = Server()
        server.get("/health")
        server.terminate()
        self.assertEqual(server.wait(), 0)
        lines = [line.split(" ", 1) for line in server.output().splitlines()]
        for time_of, _ in lines:
            self.check_time(time_of)
        self.assertEqual([rest.split(" ")[:2] for _, rest in lines[:2]],
                         [["nanovllm:", "loading"], ["nanovllm:", "serving"]])
        self.assertRegex(lines[2][1], r"^\S+ GET /health 200 total=[\d.]+ms$")
        server.log.close()

    def test_json_log(self):
        server = Server("--log", "json")
        server.post(PATH, {**LONG, "max_tokens": 2}, {"Content-Type": "application/json", "X-Request-Id": "mine"})
        server.get("/nothing")
        server.get("/health")
        server.terminate()
        server.wait()
        lines = [json.loads(line) for line in server.output().splitlines()]
        self.assertRegex(lines[0]["message"], "^loading tiny-qwen3, 7 million parameters$")
        self.assertRegex(lines[1]["message"], r"^serving tiny-qwen3 at http://127.0.0.1:\d+ .*, seed \d+$")
        for line in lines:
            self.check_time(line["time"])
        lines = lines[2:]
        self.assertEqual([(line["path"], line["status"]) for line in lines],
                         [(PATH, 200), ("/nothing", 404), ("/health", 200)])
        self.assertEqual((lines[0]["id"], lines[0]["completion_tokens"], lines[0]["finish"]), ("mine", 2, "length"))
        server.log.close()


if __name__ == "__main__":
    main()
