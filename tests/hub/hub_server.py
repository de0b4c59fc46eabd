"""A server that behaves as the hub does, on loopback: the list of files, headers, redirects of large files
to another host, ranges, refusals. Standard library only.

    hub = Hub({"acme/tiny": {"config.json": b"{}", "model.safetensors": Lfs(b"...")}})
    with hub: ...    # hub.url is HF_ENDPOINT; hub.requests says what was asked

`hub.faults[file]` is a list of faults, one for each request of its bytes; then there are none.
"""

import hashlib
import http.server
import json
import socket
import ssl
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Lfs(bytes):
    """A file that is stored elsewhere: its hash is sha256, and its bytes come from the other host."""


class Moved(bytes):
    """A small file that the hub redirects to another path of its own."""


def etag_of(data):
    if isinstance(data, Lfs):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


# ---- faults ----

class Cut:
    """The connection ends after so many bytes."""

    def __init__(self, num_bytes):
        self.num_bytes = num_bytes


class Stall(Cut):
    """Nothing comes after so many bytes, until the server ends."""


class Status:
    def __init__(self, status, **headers):
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Wrong:
    """One byte is another one."""


class NoRange:
    """The answer begins with byte 0 whatever was asked for."""


class OtherRange:
    """A part of the file that was not asked for."""


class Hold:
    """The answer waits for hub.released."""


class Longer:
    """More bytes than the headers said before, without a length."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(is_head=True)

    def do_GET(self):
        self.answer(is_head=False)

    def send(self, status, body=b"", is_head=False, length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def answer(self, is_head):
        hub = self.server.hub
        path = urllib.parse.urlsplit(self.path).path
        record = {"host": self.server.role, "method": self.command, "path": path,
                  "range": self.headers.get("Range"), "token": self.headers.get("Authorization")}
        with hub.lock:
            hub.requests.append(record)
        try:
            if self.server.role == "other":
                self.send_bytes(*hub.find(urllib.parse.unquote(path).lstrip("/")), is_head)
            else:
                self.answer_hub(hub, path, is_head)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer_hub(self, hub, path, is_head):
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "elsewhere":
            self.send_bytes(*hub.find("/".join(parts[2:])), is_head, etag=True, X_Repo_Commit=parts[1])
            return
        is_list = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if is_list else parts[:2])
        refusal = None
        if self.headers.get("Authorization") != hub.right_token:
            refusal = hub.refusals.get(name)
        if name not in hub.models:
            refusal = Status(404 if hub.says_404 else 401, X_Error_Code="RepoNotFound")
        if refusal:
            self.send(refusal.status, b'{"error": "no"}', is_head, **refusal.headers)
        elif is_list:
            self.send_list(hub, name, "/".join(parts[4:])[len("revision/"):], is_head)
        else:
            self.send_file(hub, name, parts[3], "/".join(parts[4:]), is_head)

    def take_fault(self, key):
        with self.server.hub.lock:
            faults = self.server.hub.faults.get(key)
            return faults.pop(0) if faults else None

    def send_list(self, hub, name, revision, is_head):
        if revision not in hub.revisions:
            self.send(404, b"{}", is_head, X_Error_Code="RevisionNotFound")
            return
        fault = self.take_fault("list")
        if fault:
            self.send(fault.status, b"", is_head, **fault.headers)
            return
        files = hub.models[name]
        text = hub.list_text or json.dumps({"id": name, "sha": hub.revisions[revision],
                                            "siblings": [{"rfilename": file} for file in files]})
        self.send(200, text.encode(), is_head, Content_Type="application/json")

    def send_file(self, hub, name, revision, file, is_head):
        files = hub.models[name]
        if revision not in hub.revisions and revision not in hub.revisions.values():
            self.send(404, b"", is_head, X_Error_Code="RevisionNotFound")
            return
        if file not in files:
            self.send(404, b"", is_head, X_Error_Code="EntryNotFound")
            return
        data = files[file]
        common = {"X_Repo_Commit": hub.revisions.get(revision, revision)}
        quoted = urllib.parse.quote(f"{name}/{file}")
        if isinstance(data, Lfs):
            if not is_head and (fault := self.take_fault("redirect " + file)):
                self.send(fault.status, b"", is_head, **fault.headers)
                return
            self.send(302, b"Found", is_head, Location=f"{hub.other_url}/{quoted}?signature=x",
                      X_Linked_Etag=f'"{etag_of(data)}"', X_Linked_Size=str(len(data)),
                      ETag='"of the redirect"', **common)
        elif isinstance(data, Moved):
            self.send(307, b"", is_head, Location=f"/elsewhere/{common['X_Repo_Commit']}/{quoted}",
                      X_Linked_Etag=f'"{etag_of(data)}"', X_Linked_Size=str(len(data)), **common)
        else:
            self.send_bytes(file, data, is_head, etag=True, **common)

    def send_bytes(self, file, data, is_head, etag=False, **headers):
        if is_head:
            if etag:
                headers["ETag"] = f'W/"{etag_of(data)}"' if file.endswith(".jinja") else f'"{etag_of(data)}"'
            self.send(200, b"", True, length=len(data), **{**headers, **self.server.hub.headers.get(file, {})})
            return
        fault = self.take_fault(file)
        if isinstance(fault, Status):
            self.send(fault.status, b"", **fault.headers)
            return
        if isinstance(fault, Wrong):
            data = data[:-1] + bytes([data[-1] ^ 1])
        if isinstance(fault, Hold):
            self.server.hub.released.wait(60)
        if isinstance(fault, Longer):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data + b"more")
            self.close_connection = True
            return
        begin, status = 0, 200
        asked = self.headers.get("Range")
        if asked and not isinstance(fault, NoRange):
            begin, status = int(asked[len("bytes="):].split("-")[0]), 206
            if begin >= len(data):
                self.send(416, b"", Content_Range=f"bytes */{len(data)}")
                return
            if isinstance(fault, OtherRange):
                begin -= 1
            headers["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        if not isinstance(fault, Cut):
            self.send(status, body, **headers)
            return
        self.send(status, body[:fault.num_bytes], length=len(body), **headers)
        self.wfile.flush()
        if isinstance(fault, Stall):
            self.server.hub.stalled.set()
            self.server.hub.ended.wait()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that go away are part of the tests."""


class Hub:
    def __init__(self, models, tls=None):
        self.models = models
        self.revisions = {"main": COMMIT}
        self.refusals = {}  # name: Status, until the right token comes
        self.right_token = "Bearer hf_right"
        self.says_404 = False
        self.list_text = None
        self.faults = {}
        self.headers = {}  # file: headers of its HEAD that are otherwise
        self.requests = []
        self.lock = threading.Lock()
        self.stalled, self.released, self.ended = threading.Event(), threading.Event(), threading.Event()
        self._servers = []
        scheme = "https" if tls else "http"
        for role in ("hub", "other"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.role = self, role
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(tls)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            self._servers.append(server)
        self.url, self.other_url = (f"{scheme}://127.0.0.1:{server.server_port}" for server in self._servers)

    def find(self, path):
        """("file", bytes) of "organisation/name/file"."""
        parts = path.split("/")
        file = "/".join(parts[2:])
        return file, self.models["/".join(parts[:2])][file]

    def asked(self, file, method="GET", host=None):
        """The requests for a file."""
        with self.lock:
            return [request for request in self.requests
                    if request["path"].endswith("/" + urllib.parse.quote(file)) and request["method"] == method
                    and host in (None, request["host"])]

    def __enter__(self):
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()
