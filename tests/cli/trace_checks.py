"""What must hold of every trace file; the tests of the command say what else.

    trace = Trace(path)     # reads and checks it
"""

import collections
import json


def numbers(text):
    return [int(word) for word in text.split()]


class Trace:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.events = json.load(file)
        for configuration in self.named("configuration"):
            self.block_size = configuration["args"]["block_size"]
            self.num_kv_blocks = configuration["args"]["num_kv_blocks"]
        self.items = [event for event in self.of("X") if event["cat"] == "sequence"]
        self.steps = [event for event in self.of("X") if event["cat"] == "step"]
        self.prompts, self.outputs = {}, {}  # token ids by sequence
        self._check_tracks()
        self._check_steps()
        self._check_sequences()
        self._check_blocks()

    def of(self, phase):
        return [event for event in self.events if event["ph"] == phase]

    def named(self, name):
        return [event for event in self.events if event["name"] == name]

    def _check_tracks(self):
        """Every track has a name, and its slices nest."""
        named = {(e["pid"], e["tid"]) for e in self.of("M") if e["name"] == "thread_name"}
        numbers_of_tracks = [tid for _, tid in named]
        assert len(set(numbers_of_tracks)) == len(numbers_of_tracks)
        assert not {1, 2} & {tid for pid, tid in named if tid != pid}
        tracks = collections.defaultdict(list)
        for event in self.of("X"):
            assert (event["pid"], event["tid"]) in named, event
            tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
        for slices in tracks.values():
            open_ends = []
            for begin, negative in sorted(slices):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                end = begin - negative
                assert not open_ends or end <= open_ends[-1], (begin, end)
                open_ends.append(end)

    def _check_steps(self):
        ids = [event["args"]["step"] for event in self.steps]
        assert ids == list(range(ids[0], ids[0] + len(ids))) if ids else True
        for event in self.steps:
            args = event["args"]
            items = [item for item in self.items if item["args"]["step"] == args["step"]]
            assert len(items) == args["num_sequences"]
            count = sum(len(numbers(item["args"]["tokens"])) for item in items)
            assert count == args["num_prefill_tokens"] + args["num_decode_tokens"]
            slots = [slot for item in items for slot in self.slot_mapping(item)]
            assert len(slots) == len(set(slots)), "two tokens in one slot"

    def slot_mapping(self, item):
        args, size = item["args"], self.block_size
        table = numbers(args["block_table"])
        first, count = args["first_position"], len(numbers(args["tokens"]))
        assert len(table) == -(-(first + count) // size)
        assert len(set(table)) == len(table) and all(0 <= b < self.num_kv_blocks for b in table)
        return [table[p // size] * size + p % size for p in range(first, first + count)]

    def _check_sequences(self):
        """Each token runs once between two admissions, and what comes out goes in next."""
        known = collections.defaultdict(dict)  # sequence -> position -> id
        computed, restarts = {}, collections.defaultdict(set)
        for event in self.events:
            if event["name"] in ("preempted", "prefix hit"):
                restarts[event["args"]["sequence"]].add(event["args"]["step"])
        for item in self.items:
            args, sequence = item["args"], item["args"]["sequence"]
            assert args["request"] == sequence and item["tid"] == 1000000 + sequence
            first, tokens = args["first_position"], numbers(args["tokens"])
            if sequence in computed and first != computed[sequence]:
                assert any(step <= args["step"] for step in restarts[sequence]), item
            for position, token in enumerate(tokens, first):
                assert known[sequence].setdefault(position, token) == token, item
            computed[sequence] = first + len(tokens)
            for position, token in enumerate(numbers(args.get("output", "")), computed[sequence]):
                assert known[sequence].setdefault(position, token) == token
                self.outputs.setdefault(sequence, []).append(token)
            count = args["num_prompt_tokens"]
            self.prompts[sequence] = [known[sequence].get(position) for position in range(count)]
            assert (item["name"] == "decode") == (first >= count) or sequence in restarts, item

    def _check_blocks(self):
        used = self.taken = self.freed = 0
        counters = {event["ts"]: event["args"] for event in self.named("KV blocks")}
        for event in self.named("blocks"):
            args = event["args"]
            self.taken += args["num_taken"]
            self.freed += args["num_freed"]
            used += args["num_taken"] - args["num_freed"]
            assert len(numbers(args.get("taken", ""))) <= args["num_taken"]
            counter = counters[event["ts"]]
            if self.steps[0]["args"]["step"] == 1:  # observed from the beginning
                assert counter["used"] == used, event
        for counter in counters.values():
            assert sum(counter.values()) == self.num_kv_blocks
            assert min(counter.values()) >= 0

    def overlaps(self):
        """How many steps were launched before the one before had its results."""
        pairs = zip(self.steps, self.steps[1:])
        return sum(b["ts"] < a["ts"] + a["dur"] for a, b in pairs)
