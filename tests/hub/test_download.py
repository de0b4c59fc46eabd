"""Models by name are downloaded into huggingface_hub's cache, from a server that behaves as the hub does."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from hub_server import (COMMIT, Cut, Hold, Hub, Lfs, Longer, Moved, NoRange, OtherRange, Stall, Status, Wrong, etag_of)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ["NANOVLLM_PROGRAM"])
MODEL = ROOT / "models/tiny-qwen3"
NAME = "acme/tiny"
SHARD = "model-00001-of-00002.safetensors"


def tiny_files():
    """The bundled model as the hub stores it, and files that this program does not read."""
    files = {path.name: path.read_bytes() for path in MODEL.iterdir()}
    for name, data in files.items():
        if name.endswith(".safetensors") or name == "tokenizer.json":
            files[name] = Lfs(data)
    files["config.json"] = Moved(files["config.json"])
    return {**files, ".gitattributes": b"x", "pytorch_model.bin": Lfs(b"x"), "onnx/model.onnx": Lfs(b"x"),
            "original/consolidated.00.pth": Lfs(b"x"), "extra.safetensors": Lfs(b"x")}


class DownloadTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.scratch)
        self.cache = self.scratch / "hub"
        self.hub = Hub({NAME: tiny_files()})
        self.hub.__enter__()
        self.addCleanup(self.hub.__exit__)

    @property
    def repo(self):
        return self.cache / "models--acme--tiny"

    @property
    def snapshot(self):
        return self.repo / "snapshots" / COMMIT

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("HF_", "HUGGING")) and not name.lower().endswith("_proxy")}
        return {**kept, "HOME": str(self.scratch), "HF_HUB_CACHE": str(self.cache), "HF_ENDPOINT": self.hub.url,
                "HF_HUB_DOWNLOAD_TIMEOUT": "2", **more}

    def run_program(self, *arguments, **environment):
        return subprocess.run([PROGRAM, *arguments], cwd=self.scratch, env=self.environment(**environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def pull(self, *arguments, **environment):
        done = self.run_program("pull", *(arguments or (NAME,)), **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, sentence, *arguments, **environment):
        done = self.run_program(*(arguments or ("pull", NAME)), **environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(sentence, done.stderr)
        return done

    def check_snapshot(self):
        """Every file is there as the hub has it, linked as huggingface_hub does."""
        files = self.hub.models[NAME]
        names = {path.name for path in self.snapshot.iterdir()}
        self.assertEqual(names, {"chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json",
                                 "tokenizer_config.json", "model.safetensors.index.json", SHARD,
                                 "model-00002-of-00002.safetensors"})
        for name in names:
            self.assertEqual(os.readlink(self.snapshot / name), f"../../blobs/{etag_of(files[name])}")
            self.assertEqual((self.snapshot / name).read_bytes(), files[name])
        self.assertEqual((self.repo / "refs/main").read_text(), COMMIT)
        self.assertEqual(len(list((self.repo / "blobs").iterdir())), len(names))


class Plain(DownloadTest):
    def test_a_model_is_downloaded_and_runs(self):
        done = self.run_program("generate", "-m", NAME, "--chat", "--temperature", "0", "What is 37 + 58?")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("95", done.stdout)
        self.assertIn(f"downloading {NAME}: 7 files, 14.2 MB", done.stderr)
        self.check_snapshot()
        # Then it is read as it lies, without a request.
        self.hub.requests.clear()
        done = self.run_program("run", "-m", NAME, "--temperature", "0", "What is 37 + 58?")
        self.assertIn("95", done.stdout)
        self.assertEqual(self.hub.requests, [])

    def test_pull_prints_the_place(self):
        done = self.pull()
        self.assertEqual(done.stdout, f"{self.snapshot}\n")
        self.check_snapshot()
        self.hub.requests.clear()
        self.assertIn(f"{NAME} is up to date", self.pull().stderr)
        self.assertEqual([request["path"] for request in self.hub.requests],
                         [f"/api/models/{NAME}/revision/main"])

    def test_the_token_goes_to_the_hub_alone(self):
        self.pull(HF_TOKEN="hf_mine")
        hosts = {(request["host"], request["token"]) for request in self.hub.requests}
        self.assertEqual(hosts, {("hub", "Bearer hf_mine"), ("other", None)})

    def test_the_token_of_a_file(self):
        (self.scratch / "token").write_text("hf_file\n")
        self.pull(HF_HOME=str(self.scratch))
        self.assertIn("Bearer hf_file", {request["token"] for request in self.hub.requests})
        (self.scratch / "token").write_text("hf file\r\nX-Evil: 1")
        self.refused("a token has up to", HF_HOME=str(self.scratch))

    def test_only_the_texts_are_fetched_for_what_reads_no_weights(self):
        done = self.run_program("tokenize", "-m", NAME, "hi")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_program("inspect", "-m", NAME, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.hub.asked(SHARD), [])
        self.refused("has neither model.safetensors nor", "generate", "-m", NAME, "--offline", "hi")
        self.run_program("generate", "-m", NAME, "-n", "1", "hi")
        self.check_snapshot()

    def test_a_revision(self):
        other = "f" * 40
        self.hub.revisions["refs/pr/1"] = other
        self.pull(NAME, "--revision", "refs/pr/1")
        self.assertEqual((self.repo / "refs/refs/pr/1").read_text(), other)
        self.assertFalse((self.repo / "refs/main").exists())
        done = self.run_program("tokenize", "-m", NAME, "--revision", other, "--offline", "hi")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.refused(f"{NAME} has no revision v9", "pull", NAME, "--revision", "v9")

    def test_a_new_commit_is_pulled_and_the_old_one_stays(self):
        self.pull()
        new = "e" * 40
        self.hub.revisions["main"] = new
        self.hub.requests.clear()
        self.assertIn(new, self.pull().stdout)
        self.assertEqual((self.repo / "refs/main").read_text(), new)
        self.assertTrue((self.snapshot / SHARD).exists())
        self.assertEqual(self.hub.asked(SHARD), [])  # the blob is the same

    def test_gguf_files(self):
        files = {"config.json": b"{}", "m-Q4_K_M.gguf": Lfs(b"4"), "m-Q8_0.gguf": Lfs(b"8"),
                 "big/m-F16-00001-of-00002.gguf": Lfs(b"a"), "big/m-F16-00002-of-00002.gguf": Lfs(b"b")}
        self.hub.models["acme/gguf"] = files
        self.assertTrue(self.pull("acme/gguf").stdout.endswith("/m-Q4_K_M.gguf\n"))
        done = self.pull("acme/gguf:F16")
        self.assertTrue(done.stdout.endswith("/big/m-F16-00001-of-00002.gguf\n"))
        links = sorted((self.cache / "models--acme--gguf/snapshots" / COMMIT / "big").iterdir())
        self.assertEqual([os.readlink(link) for link in links],
                         [f"../../../blobs/{etag_of(Lfs(data))}" for data in (b"a", b"b")])
        self.assertEqual(self.hub.asked("m-Q8_0.gguf"), [])
        self.refused("choose one of F16, Q4_K_M, Q8_0", "pull", "acme/gguf", "--quant", "Q2_K")

    def test_offline_asks_for_nothing(self):
        self.refused("(" + str(self.cache), "generate", "-m", NAME, "--offline", "hi")
        self.refused("HF_HUB_OFFLINE forbids", "generate", "-m", NAME, "hi", HF_HUB_OFFLINE="1")
        self.refused("HF_HUB_OFFLINE forbids", "pull", NAME, HF_HUB_OFFLINE="YES")
        self.assertEqual(self.hub.requests, [])

    def test_what_is_no_name(self):
        for name in ("../x", "a/../b", "/etc/passwd", "a/b/c", "tiny", "a/..", "a//b"):
            self.refused("is not the name of a model", "pull", name)
        for name in ("a/../../b", "../../etc/x"):
            self.refused("is not a folder", "generate", "-m", name, "hi")
        self.assertEqual(self.hub.requests, [])
        self.assertFalse(self.cache.exists())


class Gguf(DownloadTest):
    def test_gguf_files_run_by_name(self):
        convert = ["python3", "-B", str(ROOT / "tests/support/gguf_convert.py"), str(MODEL)]
        subprocess.run([*convert, str(self.scratch / "m-BF16.gguf")], check=True)
        self.hub.models["acme/gguf"] = {"m-BF16.gguf": Lfs((self.scratch / "m-BF16.gguf").read_bytes())}
        for arguments in (("acme/gguf",), ("acme/gguf:BF16", "--offline")):
            done = self.run_program("run", *arguments, "--temperature", "0", "What is 37 + 58?")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("95", done.stdout)
        done = self.run_program("tokenize", "-m", "acme/gguf", "--quant", "bf16", "hi")
        self.assertEqual(done.returncode, 0, done.stderr)


class Listed(DownloadTest):
    def list(self):
        done = self.run_program("list", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(model["name"], model["revision"], model["num_bytes"], model["is_whole"])
                for model in json.loads(done.stdout)]

    def size(self, name, *files):
        return sum(len(self.hub.models[name][file]) for file in files)

    def test_a_cache_without_models(self):
        self.assertEqual(self.list(), [])
        self.assertEqual(self.run_program("list").stdout.split(), ["NAME", "REVISION", "SIZE", "CHANGED"])
        self.refused("does not have acme/tiny", "rm", NAME)
        self.refused("is not the name of a model", "rm", "../hub")

    def test_models_are_listed_and_removed(self):
        self.hub.models["acme/gguf"] = {"m-Q4_K_M.gguf": Lfs(b"4" * 1000), "m-Q8_0.gguf": Lfs(b"8" * 2000)}
        self.pull(NAME, "acme/gguf", "acme/gguf:Q8_0")
        whole = self.size(NAME, *(path.name for path in self.snapshot.iterdir()))
        everything = [("acme/gguf:Q4_K_M", "main", 1000, True), ("acme/gguf:Q8_0", "main", 2000, True),
                      (NAME, "main", whole, True)]
        self.assertEqual(self.list(), everything)
        lines = self.run_program("list").stdout.splitlines()
        self.assertRegex(lines[3], r"^acme/tiny +main +14\.2 MB +20\d\d-\d\d-\d\d$")
        self.refused("has no GGUF file of Q2_K", "rm", "acme/gguf:Q2_K")
        self.assertEqual(self.run_program("rm", "acme/gguf:Q8_0").stderr, "nanovllm: removed acme/gguf:Q8_0, 0.0 MB\n")
        self.assertEqual(self.list(), [everything[0], everything[2]])
        self.assertEqual(len(list((self.cache / "models--acme--gguf/blobs").iterdir())), 1)
        self.assertEqual(self.run_program("rm", NAME, "acme/gguf").returncode, 0)
        self.assertEqual(self.list(), [])
        self.assertEqual([path.name for path in self.cache.iterdir()], [".locks"])

    def test_hidden_files_of_others_are_removed_with_their_model(self):
        self.hub.models["acme/gguf"] = {"m-Q4_K_M.gguf": Lfs(b"4" * 1000), "m-Q8_0.gguf": Lfs(b"8" * 2000)}
        self.pull("acme/gguf:Q4_K_M", "acme/gguf:Q8_0")
        repo = self.cache / "models--acme--gguf"
        (snapshot,) = (repo / "snapshots").iterdir()
        (repo / "blobs/attributes").write_text("x")
        (snapshot / ".gitattributes").symlink_to("../../blobs/attributes")
        self.assertEqual(self.run_program("rm", "acme/gguf:Q8_0").returncode, 0)
        self.assertEqual((snapshot / ".gitattributes").read_text(), "x")
        self.assertEqual(self.run_program("rm", "acme/gguf").returncode, 0)
        self.assertFalse(repo.exists())

    def test_a_revision_is_removed_alone(self):
        self.pull()
        self.hub.revisions["v2"] = "e" * 40
        self.hub.models[NAME]["generation_config.json"] = b"{}"
        self.pull(NAME, "--revision", "v2")
        self.assertEqual([revision for _, revision, _, _ in self.list()], ["main", "v2"])
        self.refused("has no revision v3", "rm", NAME, "--revision", "v3")
        self.assertEqual(self.run_program("rm", NAME, "--revision", "v2").returncode, 0)
        self.assertEqual([revision for _, revision, _, _ in self.list()], ["main"])
        self.assertFalse((self.repo / "refs/v2").exists())
        self.assertEqual(len(list((self.repo / "blobs").iterdir())), 8)
        done = self.run_program("generate", "-m", NAME, "--offline", "-n", "1", "hi")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_model_in_part_says_so(self):
        self.run_program("tokenize", "-m", NAME, "hi")
        ((name, revision, _, is_whole),) = self.list()
        self.assertEqual((name, revision, is_whole), (NAME, "main", False))
        self.assertIn(", in part", self.run_program("list").stdout)

    def test_a_gguf_in_parts_that_broke_is_listed_and_removed(self):
        parts = {f"m-Q8_0-0000{part}-of-00003.gguf": Lfs(bytes(1000 * part)) for part in (1, 2, 3)}
        self.hub.models["acme/gguf"] = {"m-Q4_K_M.gguf": Lfs(b"4" * 10), **parts}
        repo = self.cache / "models--acme--gguf"
        (repo / "blobs").mkdir(parents=True)
        (repo / f"blobs/{etag_of(Lfs(b'4' * 10))}.incomplete").write_bytes(b"4444")
        self.assertEqual(self.list(), [("acme/gguf", "", 4, False)])
        self.pull("acme/gguf", "acme/gguf:Q8_0")
        small, whole = ("acme/gguf:Q4_K_M", "main", 10, True), ("acme/gguf:Q8_0", "main", 6000, True)
        self.assertEqual(self.list(), [small, whole])
        (repo / "snapshots" / COMMIT / "m-Q8_0-00001-of-00003.gguf").unlink()
        self.assertEqual(self.list(), [small, ("acme/gguf:Q8_0", "main", 5000, False)])
        self.assertEqual(self.run_program("rm", "acme/gguf:Q8_0").returncode, 0)
        self.assertEqual(self.list(), [small])
        self.assertEqual(len(list((repo / "blobs").iterdir())), 1)

    def test_links_are_removed_and_not_followed(self):
        outside = self.scratch / "outside"
        outside.mkdir()
        (outside / "file").write_text("x")
        self.pull()
        (self.snapshot / "folder").symlink_to(outside)
        (self.snapshot / "file").symlink_to(outside / "file")
        self.assertEqual(self.run_program("rm", NAME).returncode, 0)
        self.assertTrue((outside / "file").exists())
        self.repo.symlink_to(outside)
        self.refused("does not have acme/tiny", "rm", NAME)

    def test_a_model_that_is_downloaded_is_not_removed(self):
        self.pull()
        lock = open(next((self.cache / ".locks/models--acme--tiny").iterdir()), "r+")
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.refused(f"{NAME} is being downloaded", "rm", NAME)
        lock.close()
        self.check_snapshot()


class Library(DownloadTest):
    def test_the_library_downloads_where_it_is_asked_to(self):
        code = ("import nanovllm\n"
                "try:\n"
                f"    nanovllm.LLM('{NAME}')\n"
                "except nanovllm.ReadError as error:\n"
                "    print(error)\n"
                f"print(nanovllm.LLM('{NAME}', download=True).tokenizer.encode('hi'))\n"
                f"print(nanovllm.Tokenizer('{NAME}').encode('hi'))\n")
        library = str(pathlib.Path(PROGRAM).parent / "libnanovllm.so")
        if b"__asan_" in pathlib.Path(library).read_bytes():
            self.skipTest("an interpreter does not load a sanitizer's library")
        environment = self.environment(PYTHONPATH=str(ROOT / "python"), NANOVLLM_LIBRARY=library)
        done = subprocess.run(["python3", "-B", "-c", code], env=environment, capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        error, first, second = done.stdout.splitlines()
        self.assertIn(f"{NAME} is not a folder, and not in the Hugging Face cache", error)
        self.assertEqual(first, second)
        self.assertIn(f"Downloading {NAME}: ", done.stderr)
        self.check_snapshot()

    def test_a_server_has_the_name(self):
        process = subprocess.Popen([PROGRAM, "serve", "-m", NAME, "--port", "0"], env=self.environment(),
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        log = ""
        while "serving" not in log and (line := process.stderr.readline()):
            log += line
        process.terminate()
        self.assertEqual(process.wait(60), 0)
        self.assertIn(f"serving {NAME} at http", log)


class Refusals(DownloadTest):
    def test_missing_private_and_gated_models(self):
        self.refused(f"{self.hub.url} has no model acme/none, or it is private: a private one needs HF_TOKEN",
                     "pull", "acme/none")
        self.refused("may not read acme/none with this token", "pull", "acme/none", HF_TOKEN="hf_right")
        self.hub.says_404 = True
        self.refused(f"{self.hub.url} has no model acme/none", "pull", "acme/none")
        for status in (401, 403):
            self.hub.refusals[NAME] = Status(status, X_Error_Code="GatedRepo")
            self.refused(f"{NAME} is gated: accept its terms at {self.hub.url}/{NAME}, and set HF_TOKEN")
        self.refused("the present token may not read it", HF_TOKEN="hf_wrong")
        self.assertFalse(self.cache.exists())
        self.pull(HF_TOKEN="hf_right")
        self.check_snapshot()

    def test_a_hub_that_is_not_there(self):
        self.refused(f"cannot get {NAME} from http://127.0.0.1:1", HF_ENDPOINT="http://127.0.0.1:1/")
        self.refused("want an http or https URL", HF_ENDPOINT="ftp://127.0.0.1")

    def test_a_list_that_is_hostile(self):
        sha = f'"sha": "{COMMIT}"'
        for text, sentence in (
                ("{", "the hub's list of files"),
                ("[]", "the hub's list of files is a list"),
                ('{"siblings": []}', "has no commit"),
                ('{"sha": "../../x", "siblings": []}', "has no commit"),
                (f"{{{sha}}}", 'has no "siblings"'),
                (f'{{{sha}, "siblings": [1]}}', "want objects"),
                (f'{{{sha}, "siblings": [{{}}]}}', "which is refused"),
                (f'{{{sha}, "siblings": [{{"rfilename": "../../x.json"}}]}}', 'the name "../../x.json", which is'),
                (f'{{{sha}, "siblings": [{{"rfilename": "/etc/x.json"}}]}}', "which is refused"),
                (f'{{{sha}, "siblings": [{{"rfilename": "a"}}, {{"rfilename": "a"}}]}}', "has a twice"),
                (f'{{{sha}, "siblings": []}}', "neither model.safetensors nor a GGUF file; it has nothing"),
        ):
            self.hub.list_text = text
            self.refused(sentence)
        self.assertFalse(self.cache.exists())

    def test_headers_that_are_hostile(self):
        file = "generation_config.json"
        for headers, sentence in (
                ({"X_Repo_Commit": "e" * 40}, f"the hub gives {file} of another commit"),
                ({"ETag": '"../../../../etc/x"'}, f"the hub does not give the hash of {file}"),
                ({"X_Linked_Etag": '"' + "g" * 64 + '"'}, f"the hub does not give the hash of {file}"),
                ({"X_Linked_Size": "1"}, f"{file} is longer than the 1 bytes"),
                ({"X_Linked_Size": "900000000000000"}, "is too full"),
        ):
            self.hub.headers[file] = headers
            self.refused(sentence)
            self.assertFalse((self.snapshot / file).exists())
        self.hub.headers.clear()
        self.pull()
        self.check_snapshot()

    def test_a_file_that_ends_elsewhere_than_the_headers_say(self):
        self.hub.faults[SHARD] = [Longer()]
        self.refused(f"{SHARD} is longer than the")
        self.pull()
        self.check_snapshot()

    def test_a_wrong_hash_is_fetched_once_more(self):
        self.hub.faults[SHARD] = [Wrong()]
        self.pull()
        self.check_snapshot()
        self.assertEqual(len(self.hub.asked(SHARD, host="other")), 2)

    def test_a_wrong_hash_twice_is_deleted(self):
        self.hub.faults["generation_config.json"] = [Wrong(), Wrong()]
        self.refused("generation_config.json arrived twice with another hash")
        self.assertFalse((self.snapshot / "generation_config.json").exists())
        name = etag_of(self.hub.models[NAME]["generation_config.json"])
        self.assertEqual([path for path in (self.repo / "blobs").iterdir() if path.name.startswith(name)], [])
        self.assertFalse((self.repo / "refs/main").exists())
        self.pull()
        self.check_snapshot()

    def test_links_out_of_the_cache_are_not_written_through(self):
        outside = self.scratch / "outside"
        outside.mkdir()
        self.cache.mkdir()
        self.repo.symlink_to(outside)
        self.refused("leads out of the cache")
        self.repo.unlink()
        self.repo.mkdir()
        (self.repo / "blobs").symlink_to(outside)
        self.refused("leads out of the cache")
        self.assertEqual(list(outside.iterdir()), [])

    def test_a_full_disk_is_seen_before(self):
        done = self.run_program("pull", NAME, HF_HUB_CACHE=self.small_disk(8))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is too full: 15 MB are needed and", done.stderr)
        self.assertEqual(self.hub.asked(SHARD), [])

    def small_disk(self, mib):
        """A folder with so much room; skips where none can be mounted."""
        folder = self.scratch / "disk"
        folder.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], capture_output=True)
        if mount.returncode:
            self.skipTest("skipped: no file system of a size can be mounted")
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)
        return str(folder)

    def test_a_disk_that_fills_up_keeps_what_it_has(self):
        folder = self.small_disk(40)
        self.hub.faults[SHARD] = [Stall(100000)]
        process = subprocess.Popen([PROGRAM, "pull", NAME], env=self.environment(HF_HUB_CACHE=folder),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertTrue(self.hub.stalled.wait(60))
        with open(os.path.join(folder, "ballast"), "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(1 << 16))
            except OSError:
                pass
        self.hub.ended.set()
        self.assertIn("is full", process.communicate(timeout=60)[1])
        os.unlink(os.path.join(folder, "ballast"))
        self.pull(HF_HUB_CACHE=folder)


class Breaks(DownloadTest):
    def test_a_cut_connection_goes_on_where_it_ended(self):
        self.hub.faults[SHARD] = [Cut(1000000), Cut(2000000)]
        self.pull()
        self.check_snapshot()
        ranges = [request["range"] for request in self.hub.asked(SHARD, host="other")]
        self.assertEqual(ranges[0], None)
        self.assertEqual(ranges[1:], ["bytes=1000000-", "bytes=3000000-"])

    def test_another_run_goes_on_where_the_first_ended(self):
        blob = etag_of(self.hub.models[NAME][SHARD])
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / f"blobs/{blob}.incomplete").write_bytes(self.hub.models[NAME][SHARD][:12345])
        self.pull()
        self.check_snapshot()
        self.assertEqual([request["range"] for request in self.hub.asked(SHARD, host="other")], ["bytes=12345-"])

    def test_a_whole_incomplete_file_is_not_fetched_again(self):
        blob = etag_of(self.hub.models[NAME][SHARD])
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / f"blobs/{blob}.incomplete").write_bytes(self.hub.models[NAME][SHARD])
        self.pull()
        self.check_snapshot()
        self.assertEqual(self.hub.asked(SHARD), [])

    def test_an_incomplete_file_of_other_bytes_is_fetched_whole(self):
        blob = etag_of(self.hub.models[NAME][SHARD])
        (self.repo / "blobs").mkdir(parents=True)
        for size in (12345, len(self.hub.models[NAME][SHARD]) + 1):
            (self.repo / f"blobs/{blob}.incomplete").write_bytes(bytes(size))
            self.pull()
            self.check_snapshot()
            shutil.rmtree(self.snapshot)
            (self.repo / f"blobs/{blob}").unlink()

    def test_a_server_without_ranges(self):
        self.hub.faults[SHARD] = [Cut(1000000), NoRange()]
        self.pull()
        self.check_snapshot()

    def test_bytes_that_were_not_asked_for_are_refused(self):
        self.hub.faults[SHARD] = [Cut(1000000), OtherRange()]
        self.refused("the hub sends other bytes than were asked for")
        self.pull()
        self.check_snapshot()

    def test_a_server_without_ranges_that_always_cuts_is_given_up(self):
        class CutWhole(NoRange, Cut):
            pass

        self.hub.faults[SHARD] = [CutWhole(1000)] * 100
        self.refused(f"cannot get {NAME}/{SHARD} from {self.hub.other_url}")
        self.assertLess(len(self.hub.asked(SHARD, host="other")), 20)

    def test_a_stall_has_a_deadline(self):
        self.hub.faults[SHARD] = [Stall(1000)]
        self.pull()
        self.check_snapshot()

    def test_what_passes_is_waited_for(self):
        self.hub.faults["list"] = [Status(429, Retry_After="1"), Status(503)]
        self.hub.faults["redirect " + SHARD] = [Status(429, Retry_After="0"), Status(500)]
        self.hub.faults[SHARD] = [Status(403)]  # a link that has expired
        self.pull()
        self.check_snapshot()

    def test_a_wait_that_is_too_long_is_a_sentence(self):
        self.hub.faults["list"] = [Status(429, Retry_After="86400")]
        self.refused("refuses more requests for now (HTTP 429)")

    def test_an_interrupt_keeps_what_was_fetched(self):
        self.hub.faults[SHARD] = [Stall(1000000)]
        # A background job's children ignore SIGINT.
        process = subprocess.Popen([PROGRAM, "generate", "-m", NAME, "hi"],
                                   env=self.environment(HF_HUB_DOWNLOAD_TIMEOUT="60"),
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(self.hub.stalled.wait(60))
        blob = self.repo / f"blobs/{etag_of(self.hub.models[NAME][SHARD])}.incomplete"
        for _ in range(1000):
            if blob.exists() and blob.stat().st_size == 1000000:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (1, ""))
        self.assertIn(f"interrupted: what was downloaded is kept, and the next download of {NAME} goes on", errors)
        self.assertEqual(blob.stat().st_size, 1000000)
        self.pull()
        self.check_snapshot()
        self.assertEqual(self.hub.asked(SHARD, host="other")[-1]["range"], "bytes=1000000-")


    def test_a_model_whose_download_broke_before_its_texts_is_no_model(self):
        """With all weights there, and texts that a model may lack missing."""
        self.pull()
        tokenizer = self.hub.models[NAME]["tokenizer.json"]
        (self.repo / "blobs" / etag_of(tokenizer)).unlink()
        shutil.rmtree(self.repo / "snapshots")
        shutil.rmtree(self.repo / "refs")
        self.hub.faults["tokenizer.json"] = [Wrong(), Wrong()]
        self.refused("tokenizer.json arrived twice with another hash")
        self.assertTrue((self.snapshot / SHARD).exists())
        self.assertTrue((self.snapshot / "config.json").exists())
        for command in ("generate", "tokenize"):
            self.refused("tokenizer.json is missing: its download was interrupted", command, "-m", NAME, "--offline",
                         "hi")
        self.assertIn(", in part", self.run_program("list").stdout)
        self.pull()
        self.check_snapshot()
        self.assertFalse((self.repo / ".unfinished").exists())

    def test_a_model_that_another_program_left_is_not_unfinished(self):
        self.pull()
        (self.snapshot / "tokenizer_config.json").unlink()
        self.hub.faults["tokenizer_config.json"] = [Wrong(), Wrong()]
        (self.repo / "blobs" / etag_of(self.hub.models[NAME]["tokenizer_config.json"])).unlink()
        self.refused("tokenizer_config.json arrived twice with another hash")
        done = self.run_program("tokenize", "-m", NAME, "--offline", "hi")
        self.assertEqual(done.returncode, 0, done.stderr)


class Together(DownloadTest):
    def test_two_downloads_at_once_fetch_each_file_once(self):
        self.hub.faults[SHARD] = [Hold()]
        done = []
        threads = [threading.Thread(target=lambda: done.append(self.pull(HF_HUB_DOWNLOAD_TIMEOUT="60")))
                   for _ in range(2)]
        for number, thread in enumerate(threads):
            thread.start()
            for _ in range(3000):
                if len(self.hub.asked(SHARD, "HEAD")) > number and self.hub.asked(SHARD, host="other"):
                    break
                time.sleep(0.01)
        time.sleep(0.5)  # the second meets the lock of the first
        self.hub.released.set()
        for thread in threads:
            thread.join()
        self.assertEqual(len(done), 2)
        self.check_snapshot()
        self.assertEqual(len(self.hub.asked(SHARD, host="other")), 1)

    def lock(self):
        """Holds the lock of the shard, as huggingface_hub does while it downloads."""
        folder = self.cache / ".locks/models--acme--tiny"
        folder.mkdir(parents=True)
        lock = open(folder / f"{etag_of(self.hub.models[NAME][SHARD])}.lock", "w")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def test_a_lock_that_is_never_given_back_is_a_sentence(self):
        self.lock()
        self.refused("another program holds the lock of " + SHARD, HF_HUB_DOWNLOAD_TIMEOUT="0.2")

    def test_a_file_that_another_program_brings_is_used(self):
        lock = self.lock()
        process = subprocess.Popen([PROGRAM, "pull", NAME], env=self.environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        for _ in range(3000):
            if (self.snapshot / "config.json").exists():
                break
            time.sleep(0.01)
        data = self.hub.models[NAME][SHARD]
        (self.repo / "blobs" / etag_of(data)).write_bytes(data)
        lock.close()
        self.assertEqual(process.wait(60), 0, process.stderr.read())
        process.stderr.close()
        self.check_snapshot()
        self.assertEqual(self.hub.asked(SHARD), [])


class Tls(DownloadTest):
    def setUp(self):
        super().setUp()
        if not shutil.which("openssl"):
            self.skipTest("skipped: no openssl to make a certificate with")
        self.certificate = self.scratch / "both.pem"
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1",
                               "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-keyout", "key.pem",
                               "-out", "cert.pem"], cwd=self.scratch, capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        pair = (self.scratch / "cert.pem").read_text() + (self.scratch / "key.pem").read_text()
        self.certificate.write_text(pair)
        self.plain = self.hub
        self.hub = Hub({NAME: tiny_files()}, tls=self.certificate)
        self.hub.__enter__()
        self.addCleanup(self.hub.__exit__)

    def test_certificates_are_verified(self):
        self.refused("SSL peer certificate")
        self.assertEqual(self.hub.requests, [])
        self.pull(SSL_CERT_FILE=str(self.scratch / "cert.pem"))
        self.check_snapshot()

    def test_a_redirect_away_from_tls_is_refused(self):
        self.hub.other_url = self.plain.other_url
        self.refused("Unsupported protocol", SSL_CERT_FILE=str(self.scratch / "cert.pem"))
        self.assertEqual(self.plain.requests, [])


class WithHuggingFaceHub(DownloadTest):
    """huggingface_hub reads what this program wrote, and the other way round."""

    def setUp(self):
        super().setUp()
        self.python = os.environ.get("NANOVLLM_HUB_PYTHON", "python3")
        found = subprocess.run([self.python, "-c", "import huggingface_hub"], capture_output=True)
        if found.returncode:
            self.skipTest("skipped: huggingface_hub is not installed (NANOVLLM_HUB_PYTHON names a Python with it)")

    def snapshot_download(self, *arguments):
        code = f"from huggingface_hub import snapshot_download as get; print(get({', '.join(arguments)}))"
        done = subprocess.run([self.python, "-c", code], env=self.environment(HF_HUB_DISABLE_XET="1"),
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_it_reads_what_we_wrote(self):
        self.pull()
        self.hub.requests.clear()
        self.assertEqual(self.snapshot_download(f"'{NAME}'", "local_files_only=True"), str(self.snapshot))
        code = ("from huggingface_hub import scan_cache_dir as scan; (repo,) = scan().repos; "
                f"assert repo.repo_id == '{NAME}' and len(list(repo.revisions)[0].files) == 8, repo; "
                "assert not scan().warnings")
        subprocess.run([self.python, "-c", code], env=self.environment(), check=True)
        self.assertEqual(self.hub.requests, [])

    def test_we_read_what_it_wrote(self):
        names = [name for name in self.hub.models[NAME] if "/" not in name and not name.endswith((".bin", "tes"))]
        code = "from huggingface_hub import hf_hub_download as get\n" + "".join(
            f"get('{NAME}', '{name}')\n" for name in names)
        done = subprocess.run([self.python, "-c", code], env=self.environment(HF_HUB_DISABLE_XET="1"),
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.hub.requests.clear()
        done = self.run_program("generate", "-m", NAME, "--offline", "--chat", "--temperature", "0",
                                "What is 37 + 58?")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("95", done.stdout)
        self.assertIn("is up to date", self.pull().stderr)
        self.assertEqual(self.hub.asked(SHARD), [])


if __name__ == "__main__":
    unittest.main()
