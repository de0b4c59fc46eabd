"""Large, odd and hostile requests, and faults of the machine: each gets an answer, and the next request too."""

import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import time
import unittest

from server_fixture import Server, ServerTest, main, run_all

PATH = "/v1/completions"
GREEDY = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}


class Bodies(ServerTest):
    flags = ("--log", "none", "--max-num-seqs", "64")

    def refuse(self, param, body, code=None):
        self.check_error(self.server.post(PATH, body), 400, param, code)

    def test_many_values(self):
        self.refuse("prompt", ('{"x": [' + "1," * 10**6 + "1]}").encode())  # it is missing
        self.assertEqual(self.server.post(PATH, {**GREEDY, "x": "a" * 10**7})[0], 200)
        self.assertEqual(self.server.post(PATH, {**GREEDY, "k" * 10**7: 1})[0], 200)
        self.refuse("prompt", {"prompt": [0] * 10**5}, "context_length_exceeded")

    def test_logit_bias(self):
        self.refuse("logit_bias", {**GREEDY, "logit_bias": {str(i): 1 for i in range(1025)}})
        self.refuse("logit_bias", {**GREEDY, "logit_bias": {"5": 1e9}})
        everything = {str(i): -100 for i in range(1024)}
        self.assertEqual(self.server.post(PATH, {**GREEDY, "logit_bias": everything})[0], 200)

    def test_stop(self):
        for stop in (["a"] * 17, "a" * 1025, [""], "a" * 10**6):
            self.refuse("stop", {**GREEDY, "stop": stop})
        # A stop string in the prompt ends nothing.
        body = self.server.post(PATH, {**GREEDY, "stop": "Once upon"})[1]
        self.assertEqual(body["choices"][0]["finish_reason"], "length")

    def test_long_texts(self):
        for piece in ("a", " ", "\u4e16", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301\u0302", "1", "\n"):
            text = piece * (10**6 // len(piece.encode()))
            status, body = self.server.post("/tokenize", {"content": text})
            self.assertEqual(status, 200)
            self.assertGreater(body["count"], 1000)

    def test_special_tokens_in_texts(self):
        """As documented they are recognised, in a prompt and in a message."""
        (token,) = self.server.post("/tokenize", {"content": "<|im_end|>"})[1]["tokens"]
        chat = {"messages": [{"role": "user", "content": "a<|im_end|>b"}]}
        self.assertEqual(self.server.post("/tokenize", chat)[1]["tokens"].count(token), 2)

    def test_combinations(self):
        """No choice of options meets another badly: whole and stream agree for each."""
        options = {"presence_penalty": (0, 1.5), "logprobs": (None, 3), "n": (1, 3), "stop": (None, ["e", "qq"]),
                   "echo": (False, True), "bad_words": (None, ["the", "a b"]), "min_tokens": (0, 4)}
        for values in itertools.product(*options.values()):
            body = {"prompt": "Once upon", "max_tokens": 6, "seed": 3, "temperature": 1, **dict(zip(options, values))}
            status, whole = self.server.post(PATH, body)
            self.assertEqual(status, 200, body)
            texts = ["" for _ in whole["choices"]]
            for event in self.server.stream(PATH, body):
                texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
            self.assertEqual(texts, [choice["text"] for choice in whole["choices"]], body)
        self.server.wait_metric("nanovllm:calls_in_flight", 0)
        self.server.wait_metric("vllm:kv_cache_usage_perc", 0)

    def test_spellings_of_paths(self):
        for path in ("//v1/models", "/v1/models/", "/%761/models", "/health/../v1/models", "/v1//models", "/V1/models",
                     "/v1/models/../../etc/passwd", "/../../etc/passwd", "/health%00"):
            self.assertIn(self.server.request("GET", path)[0], (400, 404), path)


class Machine(unittest.TestCase):
    def test_no_descriptors(self):
        server = Server("--log", "none")
        pid, limit = server.pid(), server.num_descriptors() + 4
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        time.sleep(0.3)
        for connection in crowd:
            connection.close()
        self.assertEqual(server.post(PATH, GREEDY)[0], 200)
        # Who asks in a crowd waits for a descriptor; nobody loses his.
        results = run_all([lambda: server.post(PATH, GREEDY)[0]] * 20)
        self.assertEqual(results, [200] * 20)
        self.assertIsNone(server.stop())

    def test_stopped_for_a_while(self):
        """Time in which the process did not run ends no request."""
        server = Server("--log", "none", "--max-num-seqs", "1")
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            body = json.dumps({**GREEDY, "max_tokens": 300, "ignore_eos": True}).encode()
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            os.kill(server.pid(), signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(server.pid(), signal.SIGCONT)
            answer = b""
            while got := connection.recv(65536):
                answer += got
        self.assertIn(b'"completion_tokens":300', answer)
        self.assertIsNone(server.stop())

    def test_lost_rank(self):
        """The engine is lost: who waits gets an error, the program ends with status 1."""
        server = Server("--log", "none", "--tensor-parallel-size", "2")
        workers = subprocess.run(["ps", "--ppid", str(server.pid()), "-o", "pid="], capture_output=True, text=True,
                                 check=True).stdout.split()
        self.assertEqual(len(workers), 1)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            body = json.dumps({**GREEDY, "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = connection.recv(65536)
            os.kill(int(workers[0]), signal.SIGKILL)
            while got := connection.recv(65536):
                answer += got
        self.assertTrue(answer.startswith(b"HTTP/1.1 200"))
        self.assertIn(b'"code":"engine_failed"', answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), answer[-200:])
        self.assertEqual(server.wait(), 1)
        self.assertRegex(server.output(), "the engine has failed")
        server.log.close()

    def test_open_to_all(self):
        """Without a key a foreign address is warned of, once; with one it is not."""
        for flags, warned in (((), True), (("--api-key", "x"), False)):
            server = Server("--host", "0.0.0.0", *flags)
            self.assertEqual("warning" in server.output(), warned)
            self.assertIsNone(server.stop())


if __name__ == "__main__":
    main()
