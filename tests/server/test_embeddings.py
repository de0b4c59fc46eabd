"""Embeddings, scores and rankings over HTTP."""

import base64
import json
import math
import os
import shutil
import struct
import tempfile

from server_fixture import MODEL, ROOT, Server, ServerTest, main

PATH = "/v1/embeddings"
TEXTS = ["The sun is a star.", "Two and two is four."]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class Embeddings(ServerTest):
    def embed(self, value, **members):
        status, body = self.server.post(PATH, {"input": value, **members})
        self.assertEqual(status, 200, body)
        return body

    def vectors(self, value, **members):
        return [one["embedding"] for one in self.embed(value, **members)["data"]]

    def test_answer(self):
        body = self.embed(TEXTS, user="someone")
        self.assertEqual((body["object"], body["model"]), ("list", "tiny-qwen3"))
        self.assertEqual([(one["object"], one["index"]) for one in body["data"]],
                         [("embedding", 0), ("embedding", 1)])
        for one in body["data"]:
            self.assertAlmostEqual(dot(one["embedding"], one["embedding"]), 1, places=5)
        counts = [self.server.post("/tokenize", {"prompt": text})[1]["count"] for text in TEXTS]
        self.assertEqual(body["usage"]["prompt_tokens"], sum(counts))
        self.assertEqual(body["usage"]["total_tokens"], sum(counts))

    def test_ids_are_a_text(self):
        ids = self.server.post("/tokenize", {"prompt": TEXTS[0]})[1]["tokens"]
        self.assertEqual(self.vectors([ids, ids]), self.vectors(TEXTS[0]) * 2)
        self.assertEqual(self.vectors(ids), self.vectors(TEXTS[0]))

    def test_base64_has_the_same_numbers(self):
        (text,) = self.vectors(TEXTS[0], encoding_format="base64")
        numbers = struct.unpack(f"<{len(text) * 3 // 16}f", base64.b64decode(text, validate=True))
        self.assertEqual(list(numbers), [struct.unpack("f", struct.pack("f", x))[0]
                                         for x in self.vectors(TEXTS[0])[0]])

    def test_dimensions_are_the_first_ones(self):
        (whole,), (part,) = self.vectors(TEXTS[0]), self.vectors(TEXTS[0], dimensions=6)
        length = math.sqrt(dot(whole[:6], whole[:6]))
        self.assertEqual(len(part), 6)
        for a, b in zip(part, whole):
            self.assertAlmostEqual(a, b / length, places=5)

    def test_pooling(self):
        (last,), (mean,) = self.vectors(TEXTS[0], pooling="last"), self.vectors(TEXTS[0], pooling="mean")
        self.assertEqual(last, self.vectors(TEXTS[0])[0])
        self.assertLess(dot(last, mean), 0.999)
        (long,) = self.vectors(TEXTS[0], normalize=False)
        self.assertGreater(dot(long, long), 2)

    def test_more_texts_than_sequences(self):
        texts = [f"text {i}" for i in range(100)]
        vectors = self.vectors(texts)
        self.assertEqual(vectors[77], self.vectors(texts[77])[0])

    def test_refusals(self):
        for param, members in (
                ("input", {}), ("input", {"input": []}), ("input", {"input": [""]}),
                ("input", {"input": 5}), ("input", {"input": [[10**9]]}),
                ("input", {"input": ["x"] * 2049}),
                ("dimensions", {"input": "x", "dimensions": 0}),
                ("encoding_format", {"input": "x", "encoding_format": "int8"}),
                ("pooling", {"input": "x", "pooling": "max"}),
                ("prompt_name", {"input": "x", "prompt_name": "query"}),
                ("truncate_prompt_tokens", {"input": "x", "truncate_prompt_tokens": 5}),
                ("endianness", {"input": "x", "endianness": "big"}),
        ):
            with self.subTest(members=members):
                self.check_error(self.server.post(PATH, members), 400, param)
        status, body = self.server.post(PATH, {"input": "x", "dimensions": 100000})
        self.assertEqual((status, "dimensions is 100000" in body["error"]["message"]), (400, True), body)
        self.assertEqual(body["error"]["param"], "dimensions")
        self.check_error(self.server.post(PATH, {"input": "x " * 30000}), 400, "input")

    def test_a_salt_separates_cached_prefixes(self):
        def cached(salt):
            usage = self.embed("A long text about a star. " * 4, cache_salt=salt)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        cached("a")
        self.assertGreater(cached("a"), 0)
        self.assertEqual(cached("b"), 0)

    def test_a_model_without_yes_and_no_cannot_be_asked(self):
        status, body = self.server.post("/score", {"text_1": "a", "text_2": "b"})
        self.assertEqual((status, 'the model has no token "yes"' in body["error"]["message"]), (400, True), body)


class Folder(ServerTest):
    """A server of the bundled model with other files beside it."""

    files = {}  # name: JSON

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        for name in os.listdir(os.path.join(ROOT, MODEL)):
            if name not in cls.files:
                os.symlink(os.path.join(ROOT, MODEL, name), os.path.join(cls.folder, name))
        os.mkdir(os.path.join(cls.folder, "1_Pooling"))
        for name, value in cls.files.items():
            with open(os.path.join(cls.folder, name), "w") as file:
                json.dump(value, file)
        cls.server = Server(model=cls.folder)

    @classmethod
    def tearDownClass(cls):
        fault = cls.server.stop()
        shutil.rmtree(cls.folder)
        if fault:
            raise AssertionError(fault)


def tokenizer_with_answers():
    """The bundled tokenizer, whose two last merges give way to those of the tokens "yes" and "no"."""
    with open(os.path.join(ROOT, MODEL, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    for i, pair in ((-1, ("y", "es")), (-2, ("n", "o"))):
        old = merges[i]
        token_id = vocab.pop("".join(old.split(" ") if isinstance(old, str) else old))
        merges[i] = " ".join(pair) if isinstance(old, str) else list(pair)
        vocab["".join(pair)] = token_id
    return tokenizer


class Asked(Folder):
    """A model that is asked yes or no."""

    files = {"tokenizer.json": tokenizer_with_answers()}

    def question(self, query, document, instruction):
        """The probability of yes, by the chat endpoint."""
        text = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        system = ("Judge whether the Document meets the requirements based on the Query and the Instruct "
                  "provided. Note that the answer can only be \"yes\" or \"no\".")
        ids = [self.server.post("/tokenize", {"prompt": word, "add_special_tokens": False})[1]["tokens"]
               for word in ("yes", "no")]
        body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}],
                "max_tokens": 1, "temperature": 0, "logprobs": True, "logprob_token_ids": ids[0] + ids[1],
                "chat_template_kwargs": {"enable_thinking": False}}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        yes, no = [one["logprob"] for one in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]]
        return 1 / (1 + math.exp(no - yes))

    def test_a_score_is_the_probability_of_yes(self):
        body = {"text_1": "What is 2 + 2?", "text_2": TEXTS}
        status, answer = self.server.post("/score", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual([(one["object"], one["index"]) for one in answer["data"]], [("score", 0), ("score", 1)])
        usual = "Given a web search query, retrieve relevant passages that answer the query"
        for one, text in zip(answer["data"], TEXTS):
            self.assertAlmostEqual(one["score"], self.question(body["text_1"], text, usual), places=4)
        own = self.server.post("/v1/score", {**body, "instruction": "Find sums"})[1]["data"]
        self.assertAlmostEqual(own[1]["score"], self.question(body["text_1"], TEXTS[1], "Find sums"), places=4)

    def test_pairs(self):
        each = self.server.post("/score", {"queries": TEXTS, "documents": TEXTS})[1]["data"]
        one = self.server.post("/score", {"queries": TEXTS[1], "documents": TEXTS[1]})[1]["data"]
        self.assertAlmostEqual(each[1]["score"], one[0]["score"], places=5)
        self.check_error(self.server.post("/score", {"text_1": TEXTS, "text_2": ["a", "b", "c"]}), 400, "text_1")
        self.check_error(self.server.post("/score", {"text_1": "a", "text_2": [""]}), 400, "text_2")
        self.check_error(self.server.post("/score", {"text_1": "a"}), 400, "text_2")

    def test_a_ranking_is_the_scores_in_order(self):
        documents = [*TEXTS, {"text": "A cat."}]
        scores = [one["score"] for one in self.server.post(
            "/score", {"text_1": "cats", "text_2": [*TEXTS, "A cat."]})[1]["data"]]
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            status, answer = self.server.post(path, {"query": "cats", "documents": documents})
            self.assertEqual(status, 200, answer)
            order = sorted(range(3), key=lambda i: -scores[i])
            self.assertEqual([one["index"] for one in answer["results"]], order)
            for one in answer["results"]:
                self.assertAlmostEqual(one["relevance_score"], scores[one["index"]], places=5)
                self.assertEqual(one["document"]["text"], [*TEXTS, "A cat."][one["index"]])
        top = self.server.post("/rerank", {"query": "cats", "documents": documents, "top_n": 1,
                                           "return_documents": False})[1]["results"]
        self.assertEqual((len(top), top[0]["index"], "document" in top[0]), (1, order[0], False))


class Embedder(Folder):
    """A model that says how it makes embeddings: vectors are compared."""

    files = {"1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
             "config_sentence_transformers.json": {"prompts": {"query": "Ask: "}}}

    def test_a_score_is_a_cosine(self):
        data = self.server.post(PATH, {"input": ["a star", *TEXTS]})[1]["data"]
        query, *documents = [one["embedding"] for one in data]
        answer = self.server.post("/score", {"text_1": "a star", "text_2": TEXTS})[1]
        for one, vector in zip(answer["data"], documents):
            self.assertAlmostEqual(one["score"], dot(query, vector), places=5)
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(
            self.server.post("/tokenize", {"prompt": text})[1]["count"] for text in ["a star", *TEXTS]))
        results = self.server.post("/rerank", {"query": "a star", "documents": TEXTS})[1]["results"]
        best = max(range(2), key=lambda i: dot(query, documents[i]))
        self.assertEqual((results[0]["index"], results[0]["document"]["text"]), (best, TEXTS[best]))
        self.check_error(self.server.post("/score", {"text_1": "a", "text_2": "b", "instruction": "c"}),
                         400, "instruction")

    def test_a_named_prompt_goes_before_the_text(self):
        named = self.server.post(PATH, {"input": "two", "prompt_name": "query"})[1]["data"]
        plain = self.server.post(PATH, {"input": "Ask: two"})[1]["data"]
        self.assertEqual(named, plain)
        self.check_error(self.server.post(PATH, {"input": [1, 2], "prompt_name": "query"}), 400, "prompt_name")
        self.check_error(self.server.post("/score", {"text_1": "a", "text_2": "b", "pooling": "last"}), 400, "pooling")
        long = self.server.post("/score", {"text_1": "a", "text_2": ["b", "c " * 30000]})
        self.check_error(long, 400, "text_2")


if __name__ == "__main__":
    main()
