"""TLS and Unix sockets."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest

from server_fixture import JSON, PROGRAM, ROOT, MODEL, Server, main

BODY = json.dumps({"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True, "temperature": 0})


def make_certificate(folder):
    """(certificate, key) for localhost; skips where this cannot be tried."""
    if not shutil.which("openssl"):
        raise unittest.SkipTest("there is no openssl command")
    paths = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
                   check=True, capture_output=True)
    return paths


def fails_with(test, sentence, *flags):
    with test.assertRaisesRegex(RuntimeError, sentence):
        Server(*flags)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cert, cls.key = make_certificate(cls.folder.name)
        try:
            cls.server = Server("--ssl-certfile", cls.cert, "--ssl-keyfile", cls.key, "--log", "none")
        except RuntimeError as fault:
            if "built without OpenSSL" in str(fault):
                raise unittest.SkipTest("the program was built without OpenSSL") from fault
            raise

    @classmethod
    def tearDownClass(cls):
        fault = cls.server.stop()
        cls.folder.cleanup()
        if fault:
            raise AssertionError(fault)

    def connect(self, **members):
        context = ssl.create_default_context(cafile=self.cert)
        for name, value in members.items():
            setattr(context, name, value)
        return http.client.HTTPSConnection("localhost", self.server.port, timeout=60, context=context)

    def test_answers(self):
        connection = self.connect()
        for _ in range(3):  # on one connection
            connection.request("POST", "/v1/completions", BODY, JSON)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            self.assertEqual((answer.status, body["usage"]["completion_tokens"]), (200, 20))
        connection.request("POST", "/v1/completions", json.dumps({**json.loads(BODY), "stream": True}), JSON)
        text = connection.getresponse().read().decode()
        events = [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]
        self.assertEqual("".join(event["choices"][0]["text"] for event in events), body["choices"][0]["text"])
        connection.close()

    def test_large_body(self):
        connection = self.connect()
        connection.request("POST", "/tokenize", json.dumps({"content": "word " * 200000}), JSON)
        self.assertGreater(json.loads(connection.getresponse().read())["count"], 200000)
        connection.close()

    def test_last_answer_is_whole(self):
        """The server closes TLS before the socket: a client can tell an end from a cut."""
        connection = self.connect()
        connection.request("GET", "/openapi.json", headers={"Connection": "close"})
        self.assertEqual(json.loads(connection.getresponse().read())["openapi"], "3.1.0")
        raw = ssl.create_default_context(cafile=self.cert).wrap_socket(
            socket.create_connection(("127.0.0.1", self.server.port)), server_hostname="localhost",
            suppress_ragged_eofs=False)
        raw.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while raw.recv(65536):  # raises SSLEOFError where the end is ragged
            pass
        raw.close()

    def test_protocols(self):
        context = ssl.create_default_context(cafile=self.cert)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with context.wrap_socket(socket.create_connection(("127.0.0.1", self.server.port)),
                                 server_hostname="localhost") as connection:
            self.assertEqual(connection.selected_alpn_protocol(), "http/1.1")
            self.assertIn(connection.version(), ("TLSv1.2", "TLSv1.3"))

    def test_plain_client(self):
        self.assertEqual(self.server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), b"")
        self.test_answers()

    def test_client_leaves(self):
        connection = self.connect()
        connection.request("POST", "/v1/completions", json.dumps({**json.loads(BODY), "max_tokens": 4000}), JSON)
        connection.close()
        connection = self.connect()
        for _ in range(2000):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            if 'nanovllm:calls_in_flight{engine="0",model_name="tiny-qwen3"} 0\n' in text:
                break
        else:
            self.fail("the request goes on")
        connection.close()

    def test_bad_files(self):
        fails_with(self, "certificate .* cannot be used: the file has none in PEM", "--ssl-certfile", self.key,
                   "--ssl-keyfile", self.key)
        fails_with(self, "key .* cannot be used: the file has none in PEM", "--ssl-certfile", self.cert)
        fails_with(self, "--ssl-certfile: .*/nothing.*: No such file", "--ssl-certfile", "/nothing")
        fails_with(self, "--ssl-keyfile: .*/nothing.*: No such file", "--ssl-certfile", self.cert, "--ssl-keyfile",
                   "/nothing")
        with tempfile.TemporaryDirectory() as folder:
            broken = os.path.join(folder, "broken.pem")
            with open(self.key, encoding="utf-8") as file, open(broken, "w", encoding="utf-8") as copy:
                lines = file.read().splitlines()
                copy.write("\n".join([lines[0], lines[2], lines[1], *lines[3:], ""]))
            fails_with(self, "key .* cannot be used: OpenSSL cannot read it: it is damaged", "--ssl-certfile", self.cert,
                       "--ssl-keyfile", broken)
            other = make_certificate(folder)[1]
            fails_with(self, "key .* cannot be used: it belongs to another certificate", "--ssl-certfile", self.cert,
                       "--ssl-keyfile", other)
        fails_with(self, "no --ssl-certfile", "--ssl-keyfile", self.key)


class Unix(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "s")

    def tearDown(self):
        self.folder.cleanup()

    def start(self):
        process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--uds", self.path], cwd=ROOT,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_ready(self, process):
        for line in process.stderr:
            if "serving" in line:
                return line
        self.fail("the server did not start")

    def ask(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(self.path)
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: any.name\r\nConnection: close\r\n"
                               b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
                               + BODY.encode())
            answer = b""
            while got := connection.recv(65536):
                answer += got
        return answer

    def test_answer(self):
        process = self.start()
        self.assertIn("unix:" + self.path, self.wait_ready(process))
        self.assertTrue(self.ask().startswith(b"HTTP/1.1 200"))
        second = self.start()
        self.assertEqual(second.wait(60), 1)
        self.assertIn("another program does", second.stderr.read())
        self.assertTrue(self.ask().startswith(b"HTTP/1.1 200"))
        process.terminate()
        self.assertEqual(process.wait(60), 0)
        self.assertFalse(os.path.exists(self.path))

    def test_stale(self):
        """A server that was killed leaves its socket; the next one replaces it. No other file is touched."""
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(self.path)
        process = self.start()
        self.wait_ready(process)
        process.terminate()
        self.assertEqual(process.wait(60), 0)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("mine")
        fails_with(self, "is no socket", "--uds", self.path)
        self.assertTrue(os.path.exists(self.path))
        fails_with(self, "want 1 to 107", "--uds", "/tmp/" + "a" * 200)
        fails_with(self, "cannot listen on /no/such/folder/s", "--uds", "/no/such/folder/s")
        fails_with(self, "cannot listen on an empty host: ", "--host", "")


if __name__ == "__main__":
    main()
