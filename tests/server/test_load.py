"""Mixed requests from many clients, some of whom leave: all accepted ones are answered, nothing stays.

NANOVLLM_LOAD sets the number of requests (default 300)."""

import http.client
import json
import os
import random
import threading
import time

from server_fixture import ServerTest, main

NUM_REQUESTS = int(os.environ.get("NANOVLLM_LOAD", "300"))
NUM_CLIENTS = 16
PROMPTS = ("Once upon a time", "The capital of France", "def main():", "1, 2, 3,", "word " * 100)


class Load(ServerTest):
    flags = ("--log", "none", "--max-num-seqs", "8", "--max-num-waiting", "6", "--num-kvcache-blocks", "96",
             "--max-model-len", "512")

    def make(self, number):
        dice = random.Random(number)
        chat = dice.random() < 0.4
        body = {"max_tokens": dice.choice((1, 5, 20, 60)), "seed": number, "temperature": dice.choice((0, 1)),
                "stream": dice.random() < 0.5, "logprobs": dice.choice((None, 2)), "ignore_eos": True,
                "stop": dice.choice((None, "e", ["zzz", "\n"])), "presence_penalty": dice.choice((0, 1)),
                "n": dice.choice((1, 1, 2))}
        if chat:
            body["messages"] = [{"role": "user", "content": dice.choice(PROMPTS)}]
            body["logprobs"] = body["logprobs"] and True
        else:
            body["prompt"] = dice.sample(PROMPTS, dice.choice((1, 1, 1, 3)))
        leaves = dice.random() < 0.3
        return "/v1/chat/completions" if chat else "/v1/completions", body, leaves, dice.random() * 0.05

    def run_one(self, connection, number):
        """How it went: answered, left or full. A fault raises."""
        path, body, leaves, patience = self.make(number)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        if leaves:
            connection.sock.settimeout(patience)
            try:
                connection.sock.recv(1)
            except TimeoutError:
                pass
            connection.close()
            return "left"
        answer = connection.getresponse()
        text = answer.read()
        if answer.status == 503:
            assert json.loads(text)["error"]["code"] == "queue_full", text
            return "full"
        assert answer.status == 200, text
        if body["stream"]:
            assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
            assert b'"error"' not in text, text[-400:]
        else:
            choices = json.loads(text)["choices"]
            assert all(choice["finish_reason"] in ("stop", "length") for choice in choices), choices
        return "answered"

    def client(self, numbers, results, faults):
        connection = self.server.connect()
        for number in numbers:
            try:
                while (result := self.run_one(connection, number)) == "full":
                    time.sleep(0.02)
                results.append(result)
            except (AssertionError, http.client.HTTPException, OSError, ValueError) as fault:
                faults.append((number, repr(fault)))
                connection.close()
        connection.close()

    def test_load(self):
        before = self.server.num_descriptors()
        results, faults = [], []
        threads = [threading.Thread(target=self.client,
                                    args=(range(i, NUM_REQUESTS, NUM_CLIENTS), results, faults))
                   for i in range(NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])
        self.assertEqual(len(results), NUM_REQUESTS)
        for name in ("nanovllm:calls_in_flight", "vllm:num_requests_running", "vllm:num_requests_waiting",
                     "vllm:kv_cache_usage_perc"):
            self.server.wait_metric(name, 0)
        self.server.wait_metric("nanovllm:http_connections", 1)
        self.assertEqual(self.server.metric("nanovllm:http_requests_in_flight"), 1)
        added = self.server.metric("nanovllm:requests_added_total")
        self.assertEqual(self.server.metric("nanovllm:requests_finished_total"), added)
        self.assertEqual(self.server.metric("vllm:request_success_total"), added)
        self.assertLessEqual(self.server.num_descriptors(), before + 1)
        self.assertEqual(self.server.get("/health")[0], 200)


if __name__ == "__main__":
    main()
