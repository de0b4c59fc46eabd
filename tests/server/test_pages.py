"""GET: health, version, models, metrics; keys, hosts, browsers."""

import json
import os
import re
import subprocess
import tempfile
import unittest

from server_fixture import MODEL, PROGRAM, ROOT, Server, ServerTest, main


class Pages(ServerTest):
    flags = ("--served-model-name", "tiny", "--served-model-name", "org/other")

    def test_health(self):
        for path in ("/health", "/v1/health", "/live", "/ready"):
            self.assertEqual(self.server.get(path), (200, {"status": "ok"}))

    def test_version(self):
        status, body = self.server.get("/version")
        self.assertEqual(status, 200)
        self.assertRegex(body["version"], r"^\d+\.\d+\.\d+$")

    def test_models(self):
        status, body = self.server.get("/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual([model["id"] for model in body["data"]], ["tiny", "org/other"])
        for model in body["data"]:
            self.assertEqual(model["object"], "model")
            self.assertEqual(model["owned_by"], "nanovllm")
            self.assertEqual(model["max_model_len"], 4096)
            self.assertIsInstance(model["created"], int)

    def test_model(self):
        self.assertEqual(self.server.get("/v1/models/tiny")[1]["id"], "tiny")
        for path in ("/v1/models/org/other", "/v1/models/org%2Fother"):
            self.assertEqual(self.server.get(path)[1]["id"], "org/other")
        answer = self.server.get("/v1/models/none")
        self.check_error(answer, 404, "model", "model_not_found")
        self.assertIn('want "tiny" or "org/other"', answer[1]["error"]["message"])

    def test_unknown_path(self):
        for path in ("/index.html", "/v1", "//v1/models", "/v1/../v1/models", "/%76ersion", "/healthx"):
            self.check_error(self.server.get(path), 404, None)

    def test_wrong_method(self):
        status, headers, text = self.server.request("DELETE", "/v1/models")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        self.assertEqual(json.loads(text)["error"]["code"], "method_not_allowed")
        status, headers, _ = self.server.request("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        # Not a browser's: it names no method to come.
        self.assertEqual(self.server.request("OPTIONS", "/v1/models")[0], 405)

    def test_head(self):
        status, headers, text = self.server.request("HEAD", "/health")
        self.assertEqual((status, text), (200, b""))
        self.assertEqual(headers["Content-Length"], str(len('{"status":"ok"}')))

    def test_request_id(self):
        _, headers, _ = self.server.request("GET", "/health", headers={"X-Request-Id": "abc-1.2"})
        self.assertEqual(headers["X-Request-Id"], "abc-1.2")
        for hostile in ("a b", "a\tb", "x" * 65, "\"quoted\""):
            _, headers, _ = self.server.request("GET", "/health", headers={"X-Request-Id": hostile})
            self.assertRegex(headers["X-Request-Id"], "^[0-9a-f]{16}$")

    def test_metrics(self):
        status, headers, text = self.server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        kinds = {}
        for line in text.decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.assertNotIn(name, kinds)
                kinds[name] = kind
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                     "vllm:num_requests_waiting_by_reason"):
            self.assertEqual(kinds[name], "gauge")
        for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
                     "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
                     "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
                     "vllm:spec_decode_num_accepted_tokens_total",
                     "vllm:request_success_total", "vllm:admission_rejections_total"):
            self.assertEqual(kinds[name], "counter")
        for name in ("time_to_first_token_seconds", "time_per_output_token_seconds",
                     "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                     "request_inference_time_seconds", "request_prefill_time_seconds",
                     "request_decode_time_seconds", "request_prompt_tokens", "request_generation_tokens",
                     "request_params_max_tokens", "request_params_n", "iteration_tokens_total", "request_num_preemptions"):
            self.assertEqual(kinds["vllm:" + name], "histogram")
        labels = re.search(rb"vllm:cache_config_info{(.*)} 1\n", text).group(1).decode()
        values = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
        num_tokens = int(values["num_gpu_blocks"]) * int(values["block_size"])
        self.assertEqual(int(values["kv_cache_size_tokens"]), num_tokens)
        self.assertAlmostEqual(float(values["kv_cache_max_concurrency"]), num_tokens / 4096, 1)

    def test_metrics_count(self):
        before = {name: self.server.metric("vllm:" + name)
                  for name in ("prompt_tokens_total", "generation_tokens_total", "request_success_total",
                               "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
                               "iteration_tokens_total_sum")}
        _, body = self.server.post("/v1/completions", {"prompt": "One", "max_tokens": 5, "ignore_eos": True})
        num_prompt = body["usage"]["prompt_tokens"]
        grown = {name: self.server.metric("vllm:" + name) - value for name, value in before.items()}
        self.assertEqual(grown, {"prompt_tokens_total": num_prompt, "generation_tokens_total": 5,
                                 "request_success_total": 1, "time_to_first_token_seconds_count": 1,
                                 "inter_token_latency_seconds_count": 4,
                                 "iteration_tokens_total_sum": num_prompt + 4})
        self.assertEqual(self.server.metric("nanovllm:calls_in_flight"), 0)

    def test_props(self):
        status, body = self.server.get("/props")
        self.assertEqual((status, body["default_generation_settings"]["n_ctx"], body["model_alias"]),
                         (200, 4096, "tiny"))
        self.assertEqual((body["total_slots"], body["eos_token"], body["modalities"]["vision"]),
                         (256, "<|im_end|>", False))
        expected = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repeat_penalty": 1,
                    "presence_penalty": 0, "frequency_penalty": 0}
        params = body["default_generation_settings"]["params"]
        self.assertEqual({name: params[name] for name in expected}, expected)
        self.assertIn("{%", body["chat_template"])
        self.assertNotIn("models/", json.dumps(body))

    def test_tokenizer_info(self):
        with open(os.path.join(ROOT, "models/tiny-qwen3/tokenizer_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        status, body = self.server.get("/tokenizer_info")
        self.assertEqual((status, body["chat_template"]), (200, self.server.get("/props")[1]["chat_template"]))
        self.assertEqual(body["tokenizer_class"], config["tokenizer_class"])
        self.assertEqual({**body, "chat_template": None}, {**config, "chat_template": None})

    def test_tokenizer_info_shows_no_paths(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(os.path.join(ROOT, "models/tiny-qwen3")):
                os.symlink(os.path.join(ROOT, "models/tiny-qwen3", name), os.path.join(folder, name))
            os.remove(os.path.join(folder, "tokenizer_config.json"))
            config = {"name_or_path": "/home/me", "vocab_file": "/home/me/v", "merges_file": "/home/me/m",
                      "tokenizer_file": "/home/me/t", "eos_token": "<|im_end|>"}
            with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
            server = Server("--log", "none", model=folder)
            try:
                status, body = server.get("/tokenizer_info")
            finally:
                server.stop()
        self.assertEqual((status, body["eos_token"], body["tokenizer_class"]), (200, "<|im_end|>", "PreTrainedTokenizerFast"))
        self.assertNotIn("/home/me", json.dumps(body))

    def test_short_paths(self):
        """llama-server's, and of clients whose base has no /v1."""
        self.assertEqual(self.server.get("/models"), self.server.get("/v1/models"))
        for path, body in (("/completions", {"prompt": "a", "max_tokens": 1}),
                           ("/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})):
            self.assertEqual(self.server.post(path, body)[1]["object"], self.server.post("/v1" + path, body)[1]["object"])
        for path in ("/messages", "/responses", "/models/tiny-qwen3"):
            self.assertEqual(self.server.post(path, {})[0], 404, path)

    def test_openapi(self):
        """The document and the table of routes name the same paths."""
        status, document = self.server.get("/openapi.json")
        self.assertEqual(status, 200)
        with open(os.path.join(ROOT, "src/server/route.c"), encoding="utf-8") as file:
            table = re.findall(r'{\.path = "([^"]+)",\s*\.(get|post)', file.read())
        named = {(re.sub("{.*}", "*", path), method) for path, item in document["paths"].items()
                 for method in item if method in ("get", "post")}
        for_browsers = ("/", "/page.css", "/page.js", "/openapi.json")
        self.assertEqual(named, {(path, method) for path, method in table if path not in for_browsers})
        with open(os.path.join(ROOT, "doc/serving.md"), encoding="utf-8") as file:
            page = file.read()
        for path, _ in table:
            self.assertIn("`" + path.replace("*", "NAME") + "`", page)

    def test_foreign_host(self):
        for host, status in (("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 403)):
            self.assertEqual(self.server.request("GET", "/health", headers={"Host": host})[0], status, host)

    def test_cross_origin(self):
        _, headers, _ = self.server.request("GET", "/v1/models", headers={"Origin": "http://localhost:3000"})
        self.assertEqual(headers["Access-Control-Allow-Origin"], "http://localhost:3000")
        for origin in ("http://evil.example", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
                       "null", "file://", "http://localhost@evil.example"):
            _, headers, _ = self.server.request("GET", "/v1/models", headers={"Origin": origin})
            self.assertIsNone(headers["Access-Control-Allow-Origin"], origin)

    def test_preflight(self):
        ask = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST",
               "Access-Control-Request-Headers": "authorization, x-stainless-os"}
        status, headers, text = self.server.request("OPTIONS", "/v1/chat/completions", headers=ask)
        self.assertEqual((status, text), (204, b""))
        self.assertEqual(headers["Access-Control-Allow-Origin"], "http://localhost:3000")
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization, x-stainless-os")
        status, headers, _ = self.server.request("OPTIONS", "/v1/chat/completions",
                                                 headers={**ask, "Origin": "http://evil.example"})
        self.assertIsNone(headers["Access-Control-Allow-Origin"])
        self.assertIsNone(headers["Access-Control-Allow-Headers"])

    def start(self, text):
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            return Server("--api-key-file", file.name)

    def test_a_key_on_each_line(self):
        server = self.start(b"one\r\n\ntwo")
        for key, status in (("one", 200), ("two", 200), ("three", 401), ("", 401)):
            self.assertEqual(server.get("/version", {"Authorization": "Bearer " + key})[0], status, key)
        self.assertIsNone(server.stop())

    def test_blanks_and_comments_are_no_keys(self):
        server = self.start(b"# comment\r\n  \t \none \t\r\n\t two\n #three\n")
        for key, status in (("one", 200), ("two", 200), ("", 401), ("  \t ", 401), ("# comment", 401), ("#three", 401)):
            self.assertEqual(server.get("/version", {"Authorization": "Bearer " + key})[0], status, repr(key))
        # Blanks at a field's end are none of its value.
        self.assertEqual(server.get("/version", {"Authorization": "Bearer one \t"})[0], 200)
        self.assertIsNone(server.stop())

    def seconds_to_refuse(self, num_keys):
        """Processor time of a program that reads so many keys, then finds a fault."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(b"key-%d\n" % i for i in range(num_keys)) + b"\xff\n")
            file.flush()
            process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--api-key-file", file.name], cwd=ROOT,
                                       stderr=subprocess.PIPE)
            output = process.stderr.read()
            process.stderr.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertIn(b"it is not UTF-8", output)
        return usage.ru_utime

    def test_many_keys_are_read_in_linear_time(self):
        """Four times as many may not take sixteen times as long."""
        few, many = self.seconds_to_refuse(10000), self.seconds_to_refuse(40000)
        self.assertLess(many, 8 * max(few, 0.05))

    def test_files_that_are_refused(self):
        for text, sentence in ((b"", "it has no key"), (b"\n\n", "it has no key"),
                               (b" \t\n# a comment\n", "it has no key"),
                               (b"one\0two\n", "it has a NUL byte"), (b"\xff\n", "it is not UTF-8")):
            with self.assertRaisesRegex(RuntimeError, sentence):
                self.start(text)


class Keys(ServerTest):
    flags = ("--api-key", "first-key")
    env = {"NANOVLLM_API_KEY": "second-key"}

    def test_open_pages(self):
        for path in ("/health", "/v1/health", "/live", "/ready"):
            self.assertEqual(self.server.get(path)[0], 200)

    def test_all_else_needs_a_key(self):
        for method, path in (("GET", "/v1/models"), ("GET", "/v1/models/x"), ("GET", "/metrics"),
                             ("GET", "/version"), ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"),
                             ("POST", "/tokenize"), ("POST", "/detokenize"), ("POST", "/apply-template"),
                             ("POST", "/v1/embeddings"), ("GET", "/nothing"), ("GET", "//v1/models"),
                             ("GET", "/v1/models/"), ("GET", "/%76ersion"), ("GET", "/health/../version"),
                             ("POST", "/health"), ("OPTIONS", "/v1/models"), ("GET", "/health/")):
            status, headers, text = self.server.request(method, path, "{}" if method == "POST" else None)
            self.assertEqual(status, 401, path)
            self.assertEqual(headers["WWW-Authenticate"], "Bearer")
            self.assertEqual(json.loads(text)["error"]["type"], "authentication_error")
            for field in ("Authorization: Bearer KEY", "x-api-key: KEY"):
                self.assertIn(field, json.loads(text)["error"]["message"])

    def test_right_keys(self):
        for headers in ({"Authorization": "Bearer first-key"}, {"Authorization": "bearer second-key"},
                        {"X-Api-Key": "first-key"}):
            self.assertEqual(self.server.get("/v1/models", headers)[0], 200, headers)

    def test_wrong_keys(self):
        for headers in ({"Authorization": "Bearer first-ke"}, {"Authorization": "Bearer first-keyy"},
                        {"Authorization": "first-key"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer"},
                        {"Authorization": "Bearer first-keyfirst-key"}, {"X-Api-Key": ""},
                        {"Authorization": "Basic first-key"}, {"Authorization": "Bearer " + "x" * 15000}):
            self.assertEqual(self.server.get("/v1/models", headers)[0], 401, headers)

    def test_two_keys(self):
        raw = self.server.raw(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer first-key\r\n"
                              b"Authorization: Bearer x\r\nConnection: close\r\n\r\n")
        self.assertTrue(raw.startswith(b"HTTP/1.1 401 "), raw)

    def test_refused_before_the_body(self):
        raw = self.server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                              b"Content-Length: 1000000\r\n\r\n")
        self.assertTrue(raw.startswith(b"HTTP/1.1 401 "), raw)

    def test_keys_are_not_logged(self):
        self.server.get("/v1/models?key=hidden-value", {"Authorization": "Bearer first-key"})
        self.assertNotIn("first-key", self.server.output())
        self.assertNotIn("hidden-value", self.server.output())


class SmallCache(ServerTest):
    flags = ("--num-kvcache-blocks", "64", "--block-size", "16")

    def test_the_context_is_no_longer_than_the_cache(self):
        """A chat that names no maximum asks for the rest of the context, which must be possible."""
        self.assertEqual(self.server.get("/v1/models")[1]["data"][0]["max_model_len"], 1024)
        body = {"messages": [{"role": "user", "content": "What is 2 + 2?"}], "temperature": 0,
                "chat_template_kwargs": {"enable_thinking": False}}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        long = {"prompt": [5] * 1024, "max_tokens": 1}
        self.check_error(self.server.post("/v1/completions", long), 400, "prompt", "context_length_exceeded")
        self.assertIn(": context 1024 tokens, ", self.server.output())


class SmallCachesOfTwo(SmallCache):
    """Two engines have two caches, and a request runs in one."""

    flags = (*SmallCache.flags, "--data-parallel-size", "2", "--max-model-len", "2048")


class WindowsInSomeLayers(unittest.TestCase):
    def test_the_cache_is_counted_in_tokens_of_all_groups(self):
        """Each token has a slot for the layers with a window and one for the others."""
        source = os.path.join(ROOT, "models/tiny-qwen3")
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(source):
                if name != "config.json":
                    os.symlink(os.path.join(source, name), os.path.join(folder, name))
            with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            half = config["num_hidden_layers"] // 2
            config.update(use_sliding_window=True, sliding_window=64,
                          layer_types=["full_attention"] * half + ["sliding_attention"] * half)
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
            server = Server("--num-kvcache-blocks", "101", "--block-size", "16", "--max-model-len", "512",
                            "--max-num-batched-tokens", "64", model=folder)
            try:
                labels = re.search(rb"vllm:cache_config_info{(.*)} 1\n", server.request("GET", "/metrics")[2])
                output = server.output()
            finally:
                server.stop()
        values = dict(pair.split("=") for pair in labels.group(1).decode().replace('"', "").split(","))
        self.assertEqual(values["num_gpu_blocks"], "101")
        self.assertEqual(values["kv_cache_size_tokens"], "800")
        self.assertIn(", KV cache 800 tokens, ", output)
        # 512 tokens are 32 blocks without a window. With it 63 tokens and a step's 64 are at most 9.
        self.assertEqual(values["kv_cache_max_concurrency"], f"{101 / (32 + 9):.6g}")


if __name__ == "__main__":
    main()
