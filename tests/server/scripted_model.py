"""A checkpoint whose answers a test writes: without layers that do anything, the next token follows from
the last one alone. Each answer is cut into tokens that no other answer has, so the chain never forks.
Use temperature 0."""

import json
import os
import shutil
import struct
import subprocess

from server_fixture import PROGRAM, ROOT

BUNDLED = os.path.join(ROOT, "models/tiny-qwen3")
HIDDEN = 512  # one dimension for each token that has a successor
VOCAB = 4096 + 512
END = "<|im_end|>"

# Shows what the request has, then ends with whatever the test's `start` says.
TEMPLATE = """
{%- if tools %}Tools: {{ tools | tojson }}; a call is <tool_call>{"name": ...}</tool_call>
{% endif -%}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% if m.tool_call_id %}for {{ m.tool_call_id }}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}{{ start or '' }}{% endif %}"""


def _byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 256
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(extra)
            extra += 1
    return letters


class Script:
    def __init__(self, thinks=True):
        """Without `thinks` the vocabulary has no tag of reasoning."""
        with open(os.path.join(BUNDLED, "tokenizer.json"), encoding="utf-8") as file:
            self.tokenizer = json.load(file)
        self.vocab = self.tokenizer["model"]["vocab"]
        for token in self.tokenizer["added_tokens"]:
            if not thinks:
                token["content"] = token["content"].replace("think>", "other>")
        self.special = {token["content"]: token["id"] for token in self.tokenizer["added_tokens"]}
        self.vocab.update(self.special)  # else new ids would stand before theirs
        self.letters = _byte_letters()
        self.next_id = 4096
        self.chain = {}  # token id -> the one that follows
        self.second = {}  # token id -> the one that follows where the first may not

    def start(self, text):
        """A special token that an answer follows: it stands at the end of the prompt, or of another answer."""
        for token in self.tokenizer["added_tokens"]:
            if token["content"] == text:
                token["special"] = True
                return
        self.special[text] = self.vocab[text] = self.next_id
        self.tokenizer["added_tokens"].append({**self.tokenizer["added_tokens"][0], "id": self.next_id,
                                               "content": text})
        self.next_id += 1

    def last_token(self, text):
        return self.tokens(text)[-1]

    def tokens(self, text):
        """By the program's own tokenizer."""
        out = subprocess.run([PROGRAM, "tokenize", "-m", BUNDLED, text], cwd=ROOT, capture_output=True, text=True,
                             check=True)
        return [int(token) for token in out.stdout.split()]

    def _cut(self, answer):
        """The answer in pieces of some bytes that are no token yet, characters cut too."""
        letters = "".join(self.letters[byte] for byte in answer.encode())
        at, size, pieces = 0, 3, []
        while at < len(letters):
            length = size
            is_used = lambda piece: piece in self.vocab or piece in pieces
            while at + length < len(letters) and is_used(letters[at:at + length]):
                length += 1
            piece = letters[at:at + length]
            while is_used(piece):  # it is the end: the piece before takes it
                piece = pieces.pop() + piece
            pieces.append(piece)
            at += length
            size = size * 3 % 8 or 5
        return pieces

    def answer(self, start, answer, end=END):
        """After the token `start` (an id, or a special token's text) comes the answer, then the special token
        `end`, which may have an answer of its own."""
        at = self.special[start] if isinstance(start, str) else start
        for piece in self._cut(answer):
            assert at not in self.chain, at
            self.vocab[piece] = self.next_id
            self.chain[at] = at = self.next_id
            self.next_id += 1
        self.chain[at] = self.special[end]

    def call(self, start, answer):
        """The same for the rest of a call, whose end mark is a token, as in the calls that models write."""
        text, mark, _ = answer.partition("</tool_call>")
        self.answer(start, text, end=mark or END)
        if mark:
            self.chain[self.special[mark]] = self.special[END]

    def ends(self, text):
        """The model writes the text's last token itself, where it may also write a part of it."""
        *_, before, last = self.tokens(text)
        self.chain[before] = last

    def leads(self, text, word):
        """After the text the model begins the word, unless it has to say something else."""
        tokens = self.tokens(text + word)
        (at,) = {number for number in range(len(tokens)) if tokens[:number] == self.tokens(text)}
        self.chain[tokens[at - 1]] = tokens[at]
        self.second[tokens[at - 2]] = tokens[at - 1]

    def write(self, folder, template=TEMPLATE):
        assert len(self.chain) <= HIDDEN and self.next_id <= VOCAB, (len(self.chain), self.next_id)
        with open(os.path.join(BUNDLED, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config.update(hidden_size=HIDDEN, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
                      num_key_value_heads=1, layer_types=["full_attention"], vocab_size=VOCAB,
                      tie_word_embeddings=False)
        self._dump(folder, "config.json", config)
        self._dump(folder, "tokenizer.json", self.tokenizer)
        for name in ("tokenizer_config.json", "generation_config.json"):
            shutil.copy(os.path.join(BUNDLED, name), folder)
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(template)
        self._write_weights(os.path.join(folder, "model.safetensors"))

    @staticmethod
    def _dump(folder, name, value):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file)

    def _write_weights(self, path):
        layer, head = "model.layers.0.", 64
        shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN),
                  layer + "self_attn.q_proj.weight": (head, HIDDEN), layer + "self_attn.k_proj.weight": (head, HIDDEN),
                  layer + "self_attn.v_proj.weight": (head, HIDDEN), layer + "self_attn.o_proj.weight": (HIDDEN, head),
                  layer + "mlp.gate_proj.weight": (32, HIDDEN), layer + "mlp.up_proj.weight": (32, HIDDEN),
                  layer + "mlp.down_proj.weight": (HIDDEN, 32)}
        ones = {"model.norm.weight": HIDDEN, layer + "input_layernorm.weight": HIDDEN,
                layer + "post_attention_layernorm.weight": HIDDEN, layer + "self_attn.q_norm.weight": head,
                layer + "self_attn.k_norm.weight": head}
        one, half = b"\x80\x3f", b"\x00\x3f"  # in bfloat16
        tensors = {name: bytearray(2 * rows * columns) for name, (rows, columns) in shapes.items()}
        for dimension, (token, following) in enumerate(self.chain.items()):
            for name, row in (("model.embed_tokens.weight", token), ("lm_head.weight", following)):
                at = 2 * (row * HIDDEN + dimension)
                tensors[name][at:at + 2] = one
            if token in self.second:
                at = 2 * (self.second[token] * HIDDEN + dimension)
                tensors["lm_head.weight"][at:at + 2] = half
        tensors.update({name: one * size for name, size in ones.items()})
        header, end = {}, 0
        for name, data in tensors.items():
            shape = list(shapes.get(name, (ones.get(name),)))
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data)]}
            end += len(data)
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for data in tensors.values():
                file.write(data)
