"""What is no proper HTTP, or too much of it, is refused and the connection closed."""

import http.client
import json
import os
import signal
import socket
import struct
import time

from server_fixture import ServerTest, main, run_all

HOST = b"Host: localhost\r\n"
TCP_DATA_SEGMENTS_IN = 152  # in struct tcp_info
TYPE = b"Content-Type: application/json\r\n"


class Http(ServerTest):
    flags = ("--max-body-mib", "1", "--log", "none")

    def check_refused(self, data, *statuses):
        answer = self.server.raw(data)
        self.assertIsNotNone(answer, data[:60])
        self.assertIn(int(answer.split()[1]), statuses, (data[:60], answer[:60]))
        self.assertIn(b"\r\nConnection: close\r\n", answer)
        self.assertIn(b'{"error":{"message":', answer)

    def test_large_head(self):
        self.check_refused(b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 17000, 431)
        self.check_refused(b"GET /health HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 100 + b"\r\n", 431)
        self.check_refused(b"GET /" + b"a" * 9000, 414)

    def test_large_body(self):
        head = b"POST /tokenize HTTP/1.1\r\n" + HOST + TYPE
        self.check_refused(head + b"Content-Length: 1048577\r\n\r\n", 413)
        chunks = (b"80000\r\n" + b" " * 0x80000 + b"\r\n") * 3
        self.check_refused(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, 413)

    def test_largest_body(self):
        """One of exactly the limit is read, however its length is given."""
        body = b'{"prompt": "a"}'.ljust(1 << 20)
        head = b"POST /tokenize HTTP/1.1\r\n" + HOST + TYPE + b"Connection: close\r\n"
        chunks = b"".join(b"80000\r\n" + body[at : at + 0x80000] + b"\r\n" for at in (0, 0x80000))
        for data in (b"Content-Length: 1048576\r\n\r\n" + body,
                     b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"):
            answer = self.server.raw(head + data)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer[:200])

    def test_no_http(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00\x01\x02", b"hello\r\n\r\n",
                     b"GET  /health HTTP/1.1\r\n\r\n",
                     b"GET /health HTTP/1.1\n" + b"Host: a\n\n", b"FOO health HTTP/1.1\r\n" + HOST + b"\r\n",
                     b"FOO /health\r\n" + HOST + b"\r\n", b"foo /health HTTP/1.1\r\n" + HOST + b"\r\n"):
            self.check_refused(data, 400)
        self.check_refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, 505)  # by parser, as below
        foreign = self.server.raw(b"BREW /health HTTP/1.1\r\n" + HOST + b"\r\n")
        self.assertIn(b"\r\nAllow: GET, HEAD, POST\r\n", foreign)
        self.assertTrue(foreign.startswith(b"HTTP/1.1 405 "), foreign)
        self.check_refused(b"GET /health\r\n\r\n", 505)
        self.check_refused(b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n", 505)

    def test_bad_fields(self):
        get = b"GET /health HTTP/1.1\r\n"
        for fields in (b"X: a\x00b\r\n", b"X: a\r\n b\r\n", b"X : a\r\n", b": a\r\n", b"X\r\n"):
            self.check_refused(get + HOST + fields + b"\r\n", 400)
        self.check_refused(get + b"\r\n", 400)
        self.check_refused(get + HOST + HOST + b"\r\n", 400)

    def test_ambiguous_length(self):
        post = b"POST /tokenize HTTP/1.1\r\n" + HOST + TYPE
        for fields in (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                       b"Content-Length: 3\r\nContent-Length: 5\r\n", b"Content-Length: -3\r\n",
                       b"Content-Length: 0x3\r\n", b"Content-Length: +3\r\n",
                       b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
                       b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"):
            self.check_refused(post + fields + b"\r\n", 400)
        self.check_refused(post + b"Content-Length: 18446744073709551614\r\n\r\n", 400, 413)
        self.check_refused(post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400)
        self.check_refused(post.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n", 400)

    def test_chunked_in_any_case(self):
        for coding in (b"Chunked", b"CHUNKED"):
            answer = self.server.raw(b"POST /detokenize HTTP/1.1\r\n" + HOST + TYPE + b"Connection: close\r\n"
                                     b"Transfer-Encoding: " + coding + b"\r\n\r\nf\r\n{\"tokens\": [5]}\r\n0\r\n\r\n")
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK"), (coding, answer))

    def test_absolute_target(self):
        """As proxies are asked. The name in the target counts, the one in Host does not."""
        def get(target, host=b"localhost"):
            return self.server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")

        for target, host, status in ((b"http://localhost:8000/version", b"localhost", 200),
                                     (b"HTTPS://127.0.0.1/version?a=b", b"evil.example", 200),
                                     (b"http://localhost/nothing", b"localhost", 404),
                                     (b"http://evil.example/version", b"localhost", 403),
                                     (b"http://localhost@evil.example/version", b"localhost", 400),
                                     (b"http:///version", b"localhost", 400),
                                     (b"http://localhost", b"localhost", 200),  # the page
                                     (b"http://localhost?a=b", b"localhost", 200)):
            answer = get(target, host)
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), (target, answer[:100]))

    def test_empty_field(self):
        answer = self.server.raw(b"GET /version HTTP/1.1\r\nX-Empty:\r\nX-Blank:  \r\n" + HOST +
                                 b"X-Request-Id: mine\r\nX-Last:\r\nConnection: close\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK"), answer)
        self.assertIn(b"\r\nX-Request-Id: mine\r\n", answer)

    def test_upgrade_is_ignored(self):
        answer = self.server.raw(b"GET /version HTTP/1.1\r\n" + HOST + b"Connection: Upgrade, close\r\n"
                                 b"Upgrade: h2c\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK"), answer)

    def test_body_type(self):
        for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/jsonx"},
                        {"Content-Type": "application/json", "Content-Encoding": "gzip"}):
            status, body = self.server.post("/tokenize", '{"prompt": "a"}', headers)
            self.assertEqual(status, 415, headers)
            self.assertEqual(body["error"]["code"], "unsupported_media_type")
        status, _ = self.server.post("/tokenize", '{"prompt": "a"}',
                                     {"Content-Type": "Application/JSON; charset=utf-8"})
        self.assertEqual(status, 200)

    def test_body_of_a_refused_request(self):
        """It is not the next request."""
        body = b"GET /version HTTP/1.1\r\n" + HOST + b"\r\n"
        for path in (b"/nothing", b"/version"):
            answer = self.server.raw(b"POST " + path + b" HTTP/1.1\r\n" + HOST + TYPE +
                                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1, answer)

    def test_pipelining(self):
        get = b"GET /version HTTP/1.1\r\n" + HOST
        post = (b"POST /detokenize HTTP/1.1\r\n" + HOST + TYPE +
                b"Transfer-Encoding: chunked\r\n\r\n7\r\n{\"token\r\n8\r\ns\": [5]}\r\n0\r\n\r\n")
        answer = self.server.raw(get + b"\r\n" + post + b"\r\n" + get + b"Connection: close\r\n\r\n")
        self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), 3, answer)
        self.assertLess(answer.find(b'"version"'), answer.find(b'"prompt"'))
        self.assertLess(answer.find(b'"prompt"'), answer.rfind(b'"version"'))

    def test_pipelining_without_reading(self):
        """While answers of a connection pile up, its next requests wait. Once it reads, they are answered too."""
        num_requests = 1000  # 38 MB of answers, more than kernel and server take
        get = b"GET /openapi.json HTTP/1.1\r\n" + HOST
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", self.server.port))
            counts = [self.server.metric("nanovllm:http_requests_total")]
            connection.sendall((get + b"\r\n") * (num_requests - 1) + get + b"Connection: close\r\n\r\n")
            while len(counts) < 6 or counts[-1] > counts[-6] + 5:  # each look is a request, too
                counts.append(self.server.metric("nanovllm:http_requests_total"))
            self.assertLess(counts[-1] - counts[0], num_requests)
            num_answers, end = 0, b""
            while got := connection.recv(1 << 20):
                num_answers += (end + got).count(b"HTTP/1.1 200 OK\r\n")
                end = got[-16:]
        self.assertEqual(num_answers, num_requests)

    def test_one_write_a_step(self):
        """What one step brings a connection, here a token of each of 8 outputs, comes in one segment of TCP, or in
        two where the writer wakes up in the middle of it."""
        body = json.dumps({"prompt": "Once", "max_tokens": 12, "n": 8, "ignore_eos": True, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            answer = b""
            while got := connection.recv(65536):
                answer += got
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) < TCP_DATA_SEGMENTS_IN + 4:
            self.skipTest("this kernel does not count segments")
        (num_segments,) = struct.unpack_from("=I", info, TCP_DATA_SEGMENTS_IN)
        self.assertGreaterEqual(answer.count(b"data: {"), 8 * 12 // 2)
        # The head, 12 steps, perhaps one more in which the prompt is shared. Each token alone would be 96.
        self.assertLessEqual(num_segments, 2 * 14)

    def test_http_1_0(self):
        answer = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK"), answer)
        body = b'{"prompt": "a", "max_tokens": 2, "stream": true}'
        answer = self.server.raw(b"POST /v1/completions HTTP/1.0\r\n" + TYPE +
                                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(answer.endswith(b"\r\ndata: [DONE]\n\n") or answer.endswith(b"\n\ndata: [DONE]\n\n"), answer)
        self.assertNotIn(b"chunked", answer)

    def test_expect(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as connection:
            connection.sendall(b"POST /detokenize HTTP/1.1\r\n" + HOST + TYPE +
                               b"Content-Length: 15\r\nExpect: 100-continue\r\n\r\n")
            self.assertEqual(connection.recv(4096), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b'{"tokens": [5]}')
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 200 OK"))

    def test_slow_head(self):
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
            for byte in b"GET /h":
                connection.sendall(bytes([byte]))
                time.sleep(1)
            self.assertEqual(self.server.get("/health")[0], 200)
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 408 "))
        self.assertLess(time.monotonic() - begin, 25)

    def test_half_closed(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            connection.shutdown(socket.SHUT_WR)
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 200 OK"))


def ask(server, path=b"/health", method=b"GET", body=b""):
    """A connection on which a request was sent. It stays open after the answer."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(method + b" " + path + b" HTTP/1.1\r\n" + HOST + TYPE +
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return connection


def ask_idle(server):
    """A connection that has had an answer and is kept."""
    connection = ask(server)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
    return connection


class Connections(ServerTest):
    flags = ("--max-connections", "8", "--log", "none")

    def test_idle_ones_make_room(self):
        idle = [ask_idle(self.server) for _ in range(20)]
        for _ in range(3):
            self.assertEqual(self.server.get("/health")[0], 200)
        for connection in idle:
            connection.close()
        self.server.wait_metric("nanovllm:http_connections", 1)

    def test_answer_on_its_way_is_kept(self):
        """A connection whose answer is not read yet makes no room, although it has been answered."""
        body = json.dumps({"content": "a " * 700000, "return_token_strs": True}).encode()
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(60)
            slow.connect(("127.0.0.1", self.server.port))
            slow.sendall(b"POST /tokenize HTTP/1.1\r\n" + HOST + TYPE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            slow.recv(1, socket.MSG_PEEK)
            idle = [ask_idle(self.server) for _ in range(20)]
            answer = http.client.HTTPResponse(slow)
            answer.begin()
            self.assertEqual(json.loads(answer.read())["count"], 700001)
        for connection in idle:
            connection.close()

    def test_nobody_is_sent_away(self):
        """Four times as many clients as connections: the others wait, new connections that say nothing yet are kept."""
        body = {"prompt": "a", "max_tokens": 20, "ignore_eos": True}
        silent = [socket.create_connection(("127.0.0.1", self.server.port), timeout=60) for _ in range(4)]
        self.server.wait_metric("nanovllm:http_connections", 5)

        def complete(stream):
            return self.server.request("POST", "/v1/completions", {**body, "stream": stream})[0]

        results = run_all([lambda i=i: complete(i % 2 == 0) for i in range(32)])
        self.assertEqual(results, [200] * 32)
        for connection in silent:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            self.assertTrue(connection.recv(64).startswith(b"HTTP/1.1 200 OK"))
            connection.close()

    def test_connections_are_shared(self):
        """Clients that would keep their connections: each answer ends one while others wait, and says so."""
        def ask_often():
            connection = self.server.connect()
            closed = 0
            for _ in range(10):
                connection.request("GET", "/health")
                answer = connection.getresponse()
                answer.read()
                closed += answer.headers["Connection"] == "close"
                time.sleep(0.02)
            connection.close()
            return answer.status, closed

        results = run_all([ask_often] * 24)
        self.assertEqual([result[0] for result in results], [200] * 24)
        self.assertGreater(sum(result[1] for result in results), 0)


class AllBodies(ServerTest):
    flags = ("--max-body-mib", "1", "--max-bodies-mib", "2", "--log", "none")
    METRIC = "nanovllm:request_bodies_bytes"

    def head(self, length, path=b"/tokenize"):
        return b"POST " + path + b" HTTP/1.1\r\n" + HOST + TYPE + length + b"\r\n\r\n"

    def check_full(self, data):
        answer = self.server.raw(data)
        self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer[:100])
        self.assertIn(b"\r\nRetry-After: 1\r\n", answer)
        self.assertIn(b'"code":"bodies_full"', answer)

    def test_all_bodies_have_a_bound(self):
        half = b'{"prompt": "' + b"a" * 1040000
        held = [socket.create_connection(("127.0.0.1", self.server.port), timeout=60) for _ in range(2)]
        for connection in held:
            connection.sendall(self.head(b"Content-Length: 1048576") + half)
        self.server.wait_metric(self.METRIC, 2 * len(half))
        self.check_full(self.head(b"Content-Length: 500000"))
        self.check_full(self.head(b"Transfer-Encoding: chunked") + b"4c4b40\r\n" + half)
        self.server.wait_metric(self.METRIC, 2 * len(half))
        for size in (1, 60000):  # small ones have always room
            self.assertEqual(self.server.post("/tokenize", {"prompt": "a" * size})[0], 200)
        for connection in held:
            connection.close()
        self.server.wait_metric(self.METRIC, 0)

    def test_all_bodies_count_until_they_are_read(self):
        for _ in range(4):
            self.assertEqual(self.server.post("/tokenize", {"prompt": "a " * 400000})[0], 200)
            self.assertEqual(self.server.post("/v1/completions", {"prompt": "a " * 400000})[0], 400)
            self.assertEqual(self.server.post("/nothing", {"prompt": "a " * 400000})[0], 404)
        self.server.wait_metric(self.METRIC, 0)

    def test_all_bodies_whose_members_are_kept(self):
        """What the answer repeats is in memory to its end, all else is not."""
        fields = {"ignore_eos": True, "metadata": {"a": "b" * 100000}}
        completions = {"prompt": ["a"] * 8, "user": "u" * 100000, "max_tokens": 4000}
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4000, **fields}
        responses = {"input": "a", "max_output_tokens": 3000, **fields}
        for path, body, num_running, kept in (("/v1/completions", completions, 8, False),
                                              ("/v1/chat/completions", chat, 1, False),
                                              ("/v1/responses", responses, 1, True)):
            text = json.dumps({**body, "ignore_eos": True}).encode()
            connection = ask(self.server, path.encode(), b"POST", text)
            self.server.wait_metric("vllm:num_requests_running", num_running)
            if kept:
                self.assertEqual(self.server.metric(self.METRIC), len(text))
            else:
                self.server.wait_metric(self.METRIC, 0)
                self.assertGreater(self.server.metric("vllm:num_requests_running"), 0)
            connection.close()
            self.server.wait_metric("nanovllm:calls_in_flight", 0)
            self.server.wait_metric(self.METRIC, 0)


class Limit(ServerTest):
    flags = ("--max-connections", "2", "--log", "none")

    def test_idle_one_makes_room_later(self):
        """Who waits because all connections are busy gets in when one becomes idle, not when it ends."""
        body = b'{"prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": true}'
        busy = [ask(self.server, b"/v1/completions", b"POST", body) for _ in range(2)]
        for connection in busy:
            self.assertTrue(connection.recv(64).startswith(b"HTTP/1.1 200 OK"))
        self.assertEqual(self.server.get("/health")[0], 200)
        for connection in busy:
            connection.close()

    def test_next_request_on_its_way_is_kept(self):
        """A connection whose next request has come is not idle, also if the server has not read it yet."""
        body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
        kept = [ask_idle(self.server) for _ in range(2)]
        time.sleep(0.7)  # from now on an idle one makes room
        os.kill(self.server.pid(), signal.SIGSTOP)
        newer = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        newer.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        for connection in kept:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HOST + TYPE +
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
        os.kill(self.server.pid(), signal.SIGCONT)
        for connection in [*kept, newer]:
            self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 200 OK"))
            connection.close()


if __name__ == "__main__":
    main()
