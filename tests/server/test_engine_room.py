"""The page's files, and the engine room: events, blocks, pause and step, who may do what."""

import http.client
import json
import os
import random
import socket
import subprocess
import threading
import unittest

from server_fixture import JSON, PROGRAM, ROOT, MODEL, Server, ServerTest, main

BLOCKS = 64  # of 16 tokens, so that a request can be seen to fill them
SMALL = ("--num-kvcache-blocks", str(BLOCKS), "--block-size", "16", "--max-model-len", "1024")


class Events:
    """Reads /engine/events like a browser does, and keeps the picture."""

    def __init__(self, server, headers=None, sock=None):
        """`sock`: one that has asked already."""
        self.connection = sock or server.connect(timeout=20)
        if sock:
            self.answer = http.client.HTTPResponse(sock)
            self.answer.begin()
        else:
            self.connection.request("GET", "/engine/events", headers=headers or {})
            self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.blocks, self.fills = [], {}
        self.seen = set()  # letters that any block ever had
        self.last = None

    def close(self):
        self.answer.close()
        self.connection.close()

    def next(self):
        kind = data = None
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line[len("event: "):]
            elif line.startswith("data: "):
                data = json.loads(line[len("data: "):])
            elif not line and data is not None:
                self._take(kind, data)
                return kind, data

    def _take(self, kind, data):
        if kind == "state":
            self.blocks = list(data["blocks"])
            assert len(self.blocks) == data["num_blocks"]
            fills = data["fills"]
            self.fills = dict(zip(fills[::2], fills[1::2]))
        else:
            changed = data["changed"]
            for i in range(0, len(changed), 3):
                self.blocks[changed[i]] = changed[i + 1]
                self.fills[changed[i]] = changed[i + 2]
        self.seen.update(self.blocks)
        self.last = data

    def until(self, wanted, what):
        """Reads until wanted(data) holds."""
        for _ in range(2000):
            _, data = self.next()
            if wanted(data):
                return data
        raise AssertionError(f"not seen: {what}; last {self.last}")


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False}, **more}


class Page(ServerTest):
    def test_files(self):
        kinds = {"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"}
        for path, kind in kinds.items():
            status, headers, text = self.server.request("GET", path, headers={})
            self.assertEqual(status, 200)
            self.assertEqual(headers["Content-Type"], kind + "; charset=utf-8")
            self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertGreater(len(text), 1000)
            self.assertLess(len(text), 100_000)
            for word in (b"http://", b"https://"):
                self.assertNotIn(b"src=\"" + word, text)

    def test_cache(self):
        _, headers, _ = self.server.request("GET", "/page.js", headers={})
        etag = headers["ETag"]
        self.assertEqual(headers["Cache-Control"], "no-cache")
        status, headers, text = self.server.request("GET", "/page.js", headers={"If-None-Match": etag})
        self.assertEqual((status, text, headers["ETag"]), (304, b"", etag))
        status, _, text = self.server.request("GET", "/page.js", headers={"If-None-Match": '"other"'})
        self.assertEqual(status, 200)
        self.assertTrue(text)

    def test_no_inline_code(self):
        """The policy forbids it: such a page would not work."""
        _, _, text = self.server.request("GET", "/", headers={})
        self.assertNotRegex(text.decode(), r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style")

    def test_engine_room_is_off_unless_asked_for(self):
        status, state = self.server.get("/engine/state")
        self.assertEqual((status, state["engine_room"], state["is_paused"]), (200, "off", False))
        for path in ("/engine/events", "/engine/blocks/0"):
            self.check_error(self.server.get(path), 403, None, "engine_room_off")
        answer = self.server.post("/engine/control", {"action": "pause"})
        self.check_error(answer, 403, None, "engine_room_off")


class NoPage(ServerTest):
    flags = ("--no-page", "--api-key", "secret", "--engine-room", "view")

    def test_nothing_there(self):
        for path in ("/", "/page.css", "/page.js"):
            self.check_error(self.server.get(path), 404, None, "not_found")

    def test_the_engine_room_needs_the_key(self):
        for path in ("/engine/state", "/engine/events", "/engine/blocks/0"):
            self.check_error(self.server.get(path), 401, None, "invalid_api_key")
        self.check_error(self.server.post("/engine/control", {"action": "pause"}), 401, None)
        events = Events(self.server, {"Authorization": "Bearer secret"})
        self.assertEqual(events.status, 200)
        self.assertEqual(events.next()[0], "state")
        events.close()

    def test_who_may_see_may_not_pause(self):
        answer = self.server.post("/engine/control", {"action": "pause"},
                                  {**JSON, "Authorization": "Bearer secret"})
        self.check_error(answer, 403, None, "engine_room_view")


class Room(ServerTest):
    flags = ("--engine-room", "control", *SMALL)

    def setUp(self):
        # Another test's viewers are gone when the server has seen them go.
        for _ in range(2000):
            if self.server.get("/engine/state")[1]["num_viewers"] == 0:
                break
        self.events = Events(self.server)
        self.assertEqual(self.events.status, 200)
        kind, data = self.events.next()
        self.assertEqual((kind, data["num_blocks"], data["block_size"]), ("state", BLOCKS, 16))
        self.addCleanup(self.events.close)

    def control(self, action, **more):
        return self.server.post("/engine/control", {"action": action, **more})

    def ask(self, body, headers=None):
        """Sends a request that nobody waits for here; the result is in the list when joined."""
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(self.server.post("/v1/chat/completions", body, headers)))
        thread.start()
        return thread, answers

    def test_a_request_fills_blocks(self):
        _, answer = self.server.post("/v1/chat/completions", chat("Tell me a story.", max_tokens=60, ignore_eos=True))
        self.assertEqual(answer["usage"]["completion_tokens"], 60)
        done = self.events.until(lambda data: data["stats"]["num_running"] == 0 and
                                 data["stats"]["num_generated_tokens"] >= 60, "the end")
        self.assertEqual(done["sequences"], [])
        self.assertIn("c", self.events.blocks)
        # Nothing is held, and the full blocks can be found again.
        self.assertEqual(set(self.events.blocks) - {"f", "c"}, set())
        self.assertEqual(self.events.blocks.count("c"),
                         (answer["usage"]["total_tokens"] - 1) // 16)

    def test_pause_step_resume(self):
        self.assertEqual(self.control("pause"), (200, {"is_paused": True}))
        self.events.until(lambda data: data["is_paused"], "the pause of an idle engine")
        self.assertEqual(self.server.request("GET", "/ready", headers={})[0], 503)
        thread, answers = self.ask(chat("What is 12 + 30? Say it in one word.", max_tokens=20,
                                        ignore_eos=True))
        waiting = self.events.until(lambda data: data["num_waiting"] == 1, "a waiting sequence")
        self.assertTrue(waiting["is_paused"])
        (sequence,) = waiting["sequences"]
        self.assertFalse(sequence["is_running"])
        first = waiting["stats"]["num_steps"]
        prompt = sequence["prompt"]

        self.control("step")
        data = self.events.until(lambda data: data["stats"]["num_steps"] == first + 1, "one step")
        (sequence,) = data["sequences"]
        self.assertTrue(sequence["is_running"] and sequence["is_prefill"])
        self.assertEqual(sequence["step_tokens"] + sequence["cached"], prompt)
        self.assertEqual(sequence["computed"], prompt)
        self.assertEqual(len(sequence["blocks"]), -(-prompt // 16))

        self.control("step", steps=3)
        data = self.events.until(lambda data: data["stats"]["num_steps"] == first + 4, "three more")
        (sequence,) = data["sequences"]
        self.assertEqual((sequence["step_tokens"], sequence["is_prefill"]), (1, False))
        self.assertEqual(sequence["computed"], prompt + 3)

        # The tokens of its first block are the prompt's beginning.
        status, block = self.server.get(f"/engine/blocks/{sequence['blocks'][0]}")
        self.assertEqual((status, block["num_tokens"], len(block["tokens"])), (200, 16, 16))
        self.assertTrue(block["text"].startswith("<|im_start|>"), block["text"])
        last = sequence["blocks"][-1]
        status, block = self.server.get(f"/engine/blocks/{last}")
        self.assertEqual(block["num_tokens"], (prompt + 3) % 16 or 16)
        self.assertEqual(self.events.fills[last], block["num_tokens"])

        self.assertEqual(self.control("resume"), (200, {"is_paused": False}))
        thread.join()
        self.assertEqual(answers[0][0], 200)
        self.assertEqual(answers[0][1]["usage"]["completion_tokens"], 20)
        self.assertEqual(self.server.request("GET", "/ready", headers={})[0], 200)

    def test_sequences_name_their_requests(self):
        self.control("pause")
        threads = []
        for i, name in enumerate(("first.1", "second")):
            threads.append(self.ask(chat("Hi", n=2, max_tokens=4), {**JSON, "X-Request-Id": name})[0])
            data = self.events.until(lambda data: data["num_waiting"] == 2 * i + 2, "two more that wait")
        self.assertEqual([sequence["request_id"] for sequence in data["sequences"]],
                         ["first.1", "first.1", "second", "second"])
        self.control("resume")
        for thread in threads:
            thread.join()

    def test_two_share_a_prompt(self):
        body = chat("Please explain in many words, and slowly, why the sky is blue and the grass is green.",
                    max_tokens=4, ignore_eos=True)
        self.server.post("/v1/chat/completions", body)
        self.control("pause")
        threads = [self.ask(body)[0] for _ in range(2)]
        self.events.until(lambda data: data["num_waiting"] == 2, "two that wait")
        self.control("step")
        data = self.events.until(lambda data: data["num_running"] == 2, "two that run")
        self.assertIn("s", self.events.blocks)
        self.assertGreater(data["sequences"][1]["cached"], 0)
        shared = [i for i, letter in enumerate(self.events.blocks) if letter == "s"]
        self.assertEqual(self.server.get(f"/engine/blocks/{shared[0]}")[1]["num_holders"], 2)
        self.control("resume")
        for thread in threads:
            thread.join()

    def test_a_client_that_leaves_while_paused_frees_its_blocks(self):
        self.control("pause")
        connection = self.server.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps(chat("Hi", max_tokens=50)), JSON)
        self.events.until(lambda data: data["num_waiting"] == 1, "it waits")
        connection.close()
        data = self.events.until(lambda data: not data["sequences"], "it is gone")
        self.assertTrue(data["is_paused"])
        self.control("resume")

    def test_the_engine_goes_on_when_nobody_watches(self):
        self.control("pause")
        thread, answers = self.ask(chat("Hi", max_tokens=5))
        self.events.until(lambda data: data["num_waiting"] == 1, "it waits")
        self.events.close()
        thread.join()
        self.assertEqual(answers[0][0], 200)
        for _ in range(2000):
            state = self.server.get("/engine/state")[1]
            if not state["num_viewers"]:
                break
        self.assertFalse(state["is_paused"])
        self.check_error(self.control("pause"), 409, None, "nobody_watches")
        self.check_error(self.server.get("/engine/blocks/0"), 409, None, "nobody_watches")

    def test_bad_requests(self):
        self.check_error(self.control("stop"), 400, "action")
        self.check_error(self.server.post("/engine/control", {}), 400, "action")
        for steps in (0, 1001, -1):
            self.check_error(self.control("step", steps=steps), 400, "steps")
        self.check_error(self.control("step", steps="2"), 400, "steps", "invalid_type")
        for name in (str(BLOCKS), "x", "1x", "-1", "99999999999999999999", "", "0/0"):
            self.check_error(self.server.get("/engine/blocks/" + name), 404, None)
        self.assertEqual(self.server.request("HEAD", "/engine/events", headers={})[0], 200)

    def test_number_of_viewers_is_bounded(self):
        more = [Events(self.server) for _ in range(7)]
        self.assertEqual([events.status for events in more], [200] * 7)
        status, headers, text = self.server.request("GET", "/engine/events", headers={})
        self.assertEqual((status, headers["Retry-After"]), (503, "5"))
        self.assertEqual(json.loads(text)["error"]["code"], "too_many_viewers")
        for events in more:
            self.assertEqual(events.next()[0], "state")
            events.close()

    def test_many_come_and_go(self):
        """Viewers that watch, pause and leave while others generate: every answer comes."""
        self.events.close()
        answers, faults = [], []

        def generate(seed):
            for i in range(6):
                answers.append(self.server.post("/v1/completions", {
                    "prompt": f"Once {i}", "max_tokens": 20, "ignore_eos": True, "seed": seed})[0])

        def look(seed):
            choose = random.Random(seed)
            for _ in range(12):
                events = Events(self.server)
                if events.status == 503:
                    continue  # all seats are taken
                if choose.randrange(2):
                    events.next()  # the whole picture; what comes next may not come while it is paused
                for _ in range(choose.randrange(3)):
                    status = self.control(choose.choice(("pause", "step", "resume")))[0]
                    block = self.server.get(f"/engine/blocks/{choose.randrange(BLOCKS)}")[0]
                    if (status, block) != (200, 200):
                        faults.append((status, block))
                events.close()

        threads = [threading.Thread(target=generate, args=(seed,)) for seed in range(3)]
        threads += [threading.Thread(target=look, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((answers, faults), ([200] * 18, []))
        for _ in range(2000):
            state = self.server.get("/engine/state")[1]
            if not state["num_viewers"]:
                break
        self.assertEqual((state["is_paused"], state["num_viewers"]), (False, 0))
        self.server.wait_metric("vllm:num_requests_running", 0)
        self.assertEqual(self.server.metric("vllm:kv_cache_usage_perc"), 0)

    def test_a_paused_server_ends(self):
        server = Server(*self.flags)
        events = Events(server)
        events.next()
        server.post("/engine/control", {"action": "pause"})
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            server.post("/v1/chat/completions", chat("Hi", max_tokens=5, ignore_eos=True))))
        thread.start()
        events.until(lambda data: data["num_waiting"] == 1, "it waits")
        self.assertIsNone(server.stop())
        thread.join()
        self.assertEqual(answers[0][1]["choices"][0]["finish_reason"], "length")  # it was not cut off
        events.close()


class Late(ServerTest):
    flags = ("--engine-room", "view", *SMALL)

    def test_who_comes_late_sees_what_is_cached(self):
        self.server.post("/v1/chat/completions", chat("What is 2 + 2?", max_tokens=30))
        for _ in range(2):
            events = Events(self.server)
            events.until(lambda data: "c" in events.blocks, "cached blocks")
            block = events.blocks.index("c")
            status, answer = self.server.get(f"/engine/blocks/{block}")
            self.assertEqual((status, answer["state"], answer["num_holders"]), (200, "cached", 0))
            self.assertTrue(answer["text"])
            events.close()


class Slow(ServerTest):
    """Many blocks, so that the whole picture is large: 20 kB."""

    flags = ("--engine-room", "control", "--num-kvcache-blocks", "20000", "--block-size", "16",
             "--max-model-len", "512")

    def test_a_viewer_that_does_not_read_misses_events(self):
        """Nobody waits for it, nothing piles up, and it gets the whole picture when it reads again."""
        slow = socket.socket()
        # Small segments and a small buffer here keep the server's small: loopback's would take megabytes.
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", self.server.port))
        slow.sendall(b"GET /engine/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        quick = Events(self.server)
        quick.until(lambda data: True, "the beginning")
        num_told = 0
        for i in range(20):  # each change is told with the whole picture
            action = "resume" if i % 2 else "pause"
            self.server.post("/engine/control", {"action": action})
            quick.until(lambda data: data["is_paused"] == (action == "pause"), action)
            num_told += 1
        _, answer = self.server.post("/v1/chat/completions", chat("Hi", max_tokens=20, ignore_eos=True))
        self.assertEqual(answer["usage"]["completion_tokens"], 20)
        quick.until(lambda data: data["stats"]["num_requests_finished"] == 1, "the end")

        late = Events(self.server, sock=slow)
        num_read = 0
        while late.last is None or late.last["stats"]["num_requests_finished"] < 1:
            late.next()
            num_read += 1
        self.assertLess(num_read, num_told)
        self.assertEqual(late.blocks, quick.blocks)
        late.close()
        quick.close()


class Flags(unittest.TestCase):
    def check_refused(self, flags, sentence):
        done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", *flags], cwd=ROOT,
                              env={**os.environ, "NANOVLLM_API_KEY": ""}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(sentence, done.stderr)

    def test_refused(self):
        self.check_refused(["--engine-room", "view", "--host", "0.0.0.0"], "it needs an API key")
        self.check_refused(["--engine-room", "view", "--trace", "/dev/null"], "give one of them")
        self.check_refused(["--engine-room", "yes"], "--engine-room")
        for room in "view", "control":
            self.check_refused(["--engine-room", room, "--data-parallel-size", "2"],
                               "--engine-room shows the blocks of one engine, and --data-parallel-size 2 makes 2")


if __name__ == "__main__":
    main()
