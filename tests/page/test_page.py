"""The page at / in a real browser: the chat, tool calls, the engine room, keyboard, widths, colours, faults."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))

import browser  # noqa: E402
from scripted_model import Script  # noqa: E402
from server_fixture import MODEL, Server  # noqa: E402

SKIPPED = 77
IDLE = "document.getElementById('stop').hidden && document.querySelector('.message.assistant .facts')"
SMALL = ("--num-kvcache-blocks", "128", "--block-size", "16", "--max-model-len", "1024", "--log", "none")


class PageTest(unittest.TestCase):
    """One server for a class, one browser for all: each test begins with an empty browser."""

    flags = ()
    model = MODEL
    browser = None
    start = "document.getElementById('model').textContent"  # true when the page is ready

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags, *SMALL, model=cls.model)
        cls.url = f"http://127.0.0.1:{cls.server.port}/"
        if not PageTest.browser:
            PageTest.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        # A connection that the browser keeps would be waited for.
        cls.browser.open("about:blank")
        fault = cls.server.stop()
        if fault:
            raise AssertionError(fault)

    def setUp(self):
        b = self.browser
        b.resize(1280, 860)
        b.prefer("light")
        b.open(self.url)
        b.run("localStorage.clear() || sessionStorage.clear() || "
              "localStorage.setItem('nanovllm.settings', '{\"temperature\": \"0\"}')")
        b.logs()
        b.open(self.url)
        b.until(self.start)

    def tearDown(self):
        self.assertEqual(self.browser.logs(), [])

    # ---- what a user does ----

    def ask(self, text, press_enter=True):
        self.browser.type("#composer-text", text + (browser.KEYS["Enter"] if press_enter else ""))

    def answer(self, text, number=1):
        """Asks, waits for the end, and returns the answer's text."""
        self.ask(text)
        self.browser.until(f"{IDLE} && document.querySelectorAll('.message.assistant').length === {number}")
        return self.browser.text(".message.assistant:last-child .md")

    def open_engine(self):
        self.browser.click("#engine-button")
        self.browser.until("room.cells.length === 128")

    def pause(self):
        self.browser.click("#pause")
        self.browser.until("!document.getElementById('step').disabled")

    def count(self, selector):
        return self.browser.run("document.querySelectorAll(arguments[0]).length", selector)

    def check_widths(self, what):
        wide = self.browser.run(
            "Array.from(document.querySelectorAll('html, .scroll, .chats, .engine, dialog[open]'))"
            ".filter(e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > innerWidth)"
            ".map(e => e.className || e.tagName)")
        self.assertEqual(wide, [], what)


class Chat(PageTest):
    def test_an_answer(self):
        b = self.browser
        text = self.answer("Tell me a short story about a fox.")
        self.assertGreater(len(text), 40)
        self.assertRegex(b.text(".facts"), r"^\d+ tokens · [\d,]+ a second · .*first after \d+ ms$")
        self.assertRegex(b.text("#context-text"), r"^\d+ of 1,024 tokens$")
        self.assertEqual(b.text("#announce"), b.run("document.querySelector('.md').textContent"))

    def test_reasoning_is_folded(self):
        b = self.browser
        b.run("settings.write({temperature: '0', thinking: 'on'})")
        text = self.answer("Tell me a short story about a fox.")
        self.assertTrue(text)
        self.assertNotIn("think>", text)
        self.assertFalse(b.run("document.querySelector('.reasoning').hidden"))
        self.assertFalse(b.run("document.querySelector('.reasoning').open"))
        self.assertTrue(b.run("document.querySelector('.reasoning .text').textContent"))

    def test_history_survives_a_reload(self):
        b = self.browser
        first = self.answer("What is 37 + 58?")
        second = self.answer("And what is 2 + 2?", 2)
        b.reload()
        b.until(self.start)
        shown = b.run("Array.from(document.querySelectorAll('.message .text, .message .md'), e => e.innerText)"
                      ".filter(text => text)")
        self.assertEqual([shown[0], shown[-1]], ["What is 37 + 58?", second])
        self.assertIn(first, shown)
        b.click("#new-chat")
        self.assertEqual(self.count(".message"), 0)
        b.click("#chat-list .open")
        self.assertEqual(self.count(".message"), 4)
        b.click("#chat-list .delete")
        self.assertEqual(self.count("#chat-list li"), 1)
        b.click("#chat-list .delete")
        self.assertEqual((self.count(".message"), self.count("#chat-list li")), (0, 0))

    def test_again_and_edit_replace_what_follows(self):
        b = self.browser
        first = self.answer("What is 37 + 58?")
        b.click(".message.assistant button[title^=Ask]")
        b.until(IDLE)
        self.assertEqual((self.count(".message"), b.text(".md")), (2, first))
        b.click(".message.user button")
        self.assertEqual(b.run("document.getElementById('composer-text').value"), "What is 37 + 58?")
        b.run("document.getElementById('composer-text').value = 'What is 1 + 2?'")
        b.click("#send")
        b.until(IDLE)
        self.assertEqual(self.count(".message"), 2)
        self.assertEqual(b.text(".message.user .text"), "What is 1 + 2?")

    def test_settings_are_kept_and_sent(self):
        b = self.browser
        b.click("#settings-button")
        b.type("[name=max_tokens]", "3")
        b.press("Escape")
        b.reload()
        b.until(self.start)
        self.answer("Tell me a story.")
        self.assertRegex(b.text(".facts"), "^3 tokens .*cut at max tokens$")

    def test_a_refusal_is_shown_in_the_servers_words(self):
        b = self.browser
        b.run("settings.write({max_tokens: '5000'})")
        self.ask("Hi")
        b.until("document.querySelector('.fault:not([hidden])')")
        self.assertIn("the context holds 1024", b.text(".message .fault"))
        self.assertIn("400", " ".join(b.logs()))  # what the browser itself says of such an answer

    def test_text_of_a_model_is_never_code(self):
        b = self.browser
        hostile = ("<img src=x onerror='hacked=1'> <script>hacked=1</script>\n\n"
                   "[click](javascript:hacked=1) ![pic](https://example.org/x.png) [a](data:text/html,x)\n\n"
                   "| <b>x</b> |\n|---|\n| <svg onload=hacked=1> |\n\n```html\n<script>hacked=1</script>\n```\n\n"
                   "**bold** `code` <https://example.org/\"onclick=\"hacked=1>")
        b.run("chats.write({id: 'x', title: '<img src=x>', updated: 1, messages: ["
              "{role: 'user', content: '<i>hi</i>'}, {role: 'assistant', content: arguments[0]}]})", hostile)
        b.run("openChat('x')")
        self.assertEqual(self.count(".messages img, .messages script, .messages svg, .messages b, .messages i"), 0)
        self.assertEqual(self.count("#chat-list img"), 0)
        self.assertEqual(self.count(".md strong"), 1)
        self.assertEqual(self.count(".md pre code"), 1)
        links = b.run("Array.from(document.querySelectorAll('.md a'), a => a.href)")
        self.assertTrue(all(link.startswith("https://example.org/") for link in links), links)
        self.assertEqual(b.run("typeof hacked"), "undefined")

    def test_markdown(self):
        cases = {
            "a *b* **c** `d`": "<p>a <em>b</em> <strong>c</strong> <code>d</code></p>",
            "2 * 3 * 4, snake_case_name": "<p>2 * 3 * 4, snake_case_name</p>",
            "# One\ntext": "<h3>One</h3><p>text</p>",
            "- a\n  - b\n- c": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
            "3. a\n4. b": "<ol start=\"3\"><li>a</li><li>b</li></ol>",
            "> a\n> b": "<blockquote><p>a<br>b</p></blockquote>",
            "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
            "**not closed": "<p>**not closed</p>",
            "\\*a\\*": "<p>*a*</p>",
        }
        for text, html in cases.items():
            got = self.browser.run("(holder => (showMarkdown(holder, arguments[0]), holder.innerHTML))"
                                   "(document.createElement('div'))", text)
            self.assertEqual(got, html, text)

    def test_text_that_is_all_marks_is_shown(self):
        """Each of these would take minutes if its characters were looked at again and again."""
        spaces = " " * 200000
        for text in ("*a " * 100000, "`" * 20000 + "x", "[" * 20000, "> " * 5000, "**" * 10000, "_a" * 20000,
                     f"# a{spaces}b", f"a | b\n-{spaces}x", f"-{spaces}*", "- " * 20000, "1. " * 20000,
                     "\n".join(" " * i + "- a" for i in range(300)), "|" * 20000 + "\n|-|"):
            length = self.browser.run("(holder => (showMarkdown(holder, arguments[0]), holder.textContent.length))"
                                      "(document.createElement('div'))", text)
            self.assertGreaterEqual(length, 0)

    def test_engine_room_is_off_unless_asked_for(self):
        self.browser.click("#engine-button")
        self.browser.until("!document.getElementById('engine-off').hidden")
        self.assertIn("--engine-room control", self.browser.text("#engine-off"))
        self.assertTrue(self.browser.run("document.getElementById('controls').hidden"))


# Answers the last message by its role, and refuses a result that is not the call's.
CALLING = """{%- if tools %}Tools: {{ tools | tojson }}; a call is <tool_call>{"name": ...}</tool_call>{% endif %}
{%- for m in messages %}
{%- if m.tool_call_id and m.tool_call_id not in messages | selectattr("tool_calls") | map(attribute="tool_calls")
    | sum(start=[]) | map(attribute="id") %}{{ raise_exception("a result of no call") }}{% endif -%}
{{ m.role }}: {{ m.content }}{% endfor -%}
{{ "<|after|>" if messages[-1].role == "tool" else "<|call|>" }}"""
TOOLS = json.dumps([{"type": "function", "function": {"name": name}} for name in ("add", "get_time")])


class Calls(PageTest):
    """A model that answers a question with two calls, and their results with a sentence."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        script = Script()
        for start, answer in {
                "<|after|>": "It makes **95**, at noon.",
                "<|call|>": '<think>I had better ask.</think>Let me see.\n'
                            '<tool_call>{"name": "add", "arguments": {"a": 37, "b": "<i>58</i>"}}</tool_call>\n'
                            '<tool_call>{"name": "get_time"}</tool_call>'}.items():
            script.start(start)
            script.answer(start, answer)
        script.write(cls.folder.name, CALLING)
        cls.model = cls.folder.name
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def give_tools(self, text):
        b = self.browser
        b.click("#settings-button")
        b.run("document.getElementById('tools').value = ''")
        b.type("#tools", text)

    def ask_for_calls(self):
        self.give_tools(TOOLS)
        self.browser.press("Escape")
        self.ask("What is 37 + 58, and when?")
        self.browser.until("document.querySelectorAll('.results textarea').length === 2")

    def test_calls_are_folded(self):
        b = self.browser
        self.ask_for_calls()
        self.assertEqual(b.run("Array.from(document.querySelectorAll('.call summary'), e => e.textContent)"),
                         ["Tool call: add", "Tool call: get_time"])
        self.assertEqual(self.count("details[open]"), 0)
        self.assertEqual((b.text(".md"), b.run("document.querySelector('.reasoning .text').textContent")),
                         ("Let me see.", "I had better ask."))
        b.click(".call summary")
        self.assertEqual(b.text(".call pre"), '{"a": 37, "b": "<i>58</i>"}')
        self.assertEqual(self.count(".messages i"), 0)
        self.assertIn("The model calls add and get_time.", b.text("#announce"))

    def test_results_are_answered_by_keyboard(self):
        b = self.browser
        self.ask_for_calls()
        b.run("document.querySelector('.results textarea').focus()")
        b.press(*"95")
        b.press("Enter")  # goes to the field that is empty
        self.assertEqual(b.run("document.activeElement.labels[0].innerText.trim()"), "Result of get_time")
        b.press(*"noon")
        b.press("Enter")
        b.until(f"{IDLE} && document.querySelectorAll('.message.assistant').length === 2")
        self.assertEqual((b.text(".message:last-child .md"), self.count(".results")), ("It makes 95, at noon.", 0))
        sent = b.run("requestBody({messages: chatView.chat.messages.slice(0, -1)}).messages")
        self.assertEqual([message["role"] for message in sent], ["user", "assistant", "tool", "tool"])
        self.assertEqual([message["content"] for message in sent[2:]], ["95", "noon"])
        self.assertEqual([message["tool_call_id"] for message in sent[2:]],
                         [call["id"] for call in sent[1]["tool_calls"]])
        self.assertEqual(sent[1]["reasoning"], "I had better ask.")
        # A call that is required is required of the answer to a question alone.
        b.run("settings.write({...settings.values, tool_choice: 'required'})")
        choices = b.run("[1, 2].map(n => requestBody({messages: chatView.chat.messages.slice(0, n)}).tool_choice)")
        self.assertEqual(choices, ["required", None])
        b.reload()
        b.until(self.start)
        b.click(".call summary")
        self.assertEqual(b.run("document.querySelectorAll('.call pre')[1].textContent"), "95")

    def test_a_question_may_follow_instead(self):
        self.ask_for_calls()
        self.ask("Never mind.")
        self.browser.until("document.querySelectorAll('.message.assistant').length === 2 && " + IDLE)
        self.browser.reload()
        self.browser.until(self.start)
        self.assertEqual(self.count(".message.assistant:nth-child(2) .results"), 0)
        self.assertEqual(self.count(".message.assistant:last-child .results"), 1)

    def test_tools_that_are_not_json(self):
        b = self.browser
        self.give_tools("[{")
        self.assertIn("not JSON", b.text("#tools-fault"))
        self.assertEqual(b.run("document.getElementById('tools').getAttribute('aria-invalid')"), "true")
        b.press("Escape")
        self.ask("What is 37 + 58?")
        b.until("document.querySelector('.message .fault:not([hidden])')")
        self.assertIn("not JSON", b.text(".message .fault"))
        self.give_tools(TOOLS)
        self.assertFalse(b.run("document.getElementById('tools-fault').checkVisibility()"))

    def test_calls_at_phone_width(self):
        b = self.browser
        self.ask_for_calls()
        b.click(".call summary")
        b.resize(360, 740, mobile=True)
        self.check_widths("calls")
        b.click("#settings-button")
        self.check_widths("the settings")


class Engine(PageTest):
    flags = ("--engine-room", "control")

    def test_pause_step_and_watch(self):
        b = self.browser
        self.open_engine()
        self.pause()
        self.assertRegex(b.text("#engine-state"), "^paused after step ")
        self.ask("Tell me a long story about a bear.")
        b.until("document.querySelectorAll('#sequences tr').length === 1")
        self.assertEqual(b.text("#sequences td"), "waits")
        b.click("#step")
        b.until("document.querySelector('#sequences .prefill')")
        self.assertRegex(b.text("#sequences td"), r"^prefill \d+ tokens$")
        b.click("#step")
        b.until("document.querySelector('#sequences .decode')")
        self.assertEqual(b.text("#sequences td"), "decode 1 token")
        used = self.count("#blocks .u, #blocks .p")
        self.assertEqual(str(used), b.text("#sequences td:last-child"))
        self.assertEqual(b.text("#f-used"), f"{used} of 128")
        # The pointer on the first of its blocks shows the prompt.
        first = b.run("room.state.sequences[0].blocks[0]")
        b.point(f"#blocks .cell:nth-child({first + 1})")
        b.until("document.querySelectorAll('.token').length === 16")
        self.assertTrue(b.text("#block-text").startswith("<|im_start|>"))
        b.point("#sequences tr")
        b.until(f"document.querySelectorAll('#blocks .mine').length === {used}")
        b.click("#pause")
        b.until(IDLE)
        b.until("document.querySelectorAll('#blocks .u').length === 0")
        self.assertGreater(self.count("#blocks .c"), 0)
        self.assertEqual(b.text("#engine-state"), "idle")
        self.assertIn("The last step", b.run("document.getElementById('chart-steps').getAttribute('aria-label')"))
        # Drawn at most ten times a second, so a moment after the last event.
        b.until("(canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
                ".data.some(value => value))(document.getElementById('chart-steps'))")

    def test_an_answer_comes_piece_by_piece(self):
        b = self.browser
        self.open_engine()
        self.pause()
        self.ask("Tell me a short story about a fox.")
        lengths = [0]
        for _ in range(3):
            b.run("askJson('engine/control', {body: {action: 'step', steps: 8}})")
            lengths.append(b.until("(length => length > arguments[0] && length)"
                                   "((document.querySelector('.md').textContent +"
                                   " document.querySelector('.reasoning .text').textContent).length)",
                                   "a longer answer", argument=lengths[-1]))
        self.assertTrue(b.run("document.getElementById('send').hidden"))
        b.click("#pause")
        b.until(IDLE)
        self.assertGreater(len(b.text(".md")), 40)

    def test_stop_frees_the_blocks(self):
        b = self.browser
        self.open_engine()
        self.pause()
        self.ask("Tell me a long story about a wolf.")
        b.until("document.querySelectorAll('#sequences tr').length === 1")
        b.click("#step")
        b.until("document.querySelector('#sequences .prefill')")
        b.click("#stop")
        b.until(IDLE)
        self.assertEqual(b.text(".facts").split(" · ")[-1], "stopped")
        b.until("document.querySelectorAll('#sequences tr').length === 0")
        b.until("document.querySelectorAll('#blocks .u').length === 0")
        self.assertTrue(b.run("room.state.is_paused"))

    def test_by_keyboard_alone(self):
        b = self.browser
        label = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        self.assertEqual(b.run("document.activeElement.id"), "composer-text")
        b.press(*"Hi there")
        b.press("Enter")
        b.until(IDLE)
        # The way to the engine room's button, backwards through the chat.
        for _ in range(30):
            if b.run("document.activeElement.id") == "engine-button":
                break
            b.press("Tab", shift=True)
            self.assertNotEqual(b.run("getComputedStyle(document.activeElement).outlineStyle + "
                                      "getComputedStyle(document.activeElement.parentElement).boxShadow"),
                                "nonenone", b.run(label))
        self.assertEqual(b.run("document.activeElement.id"), "engine-button")
        b.press("Enter")
        b.until("room.cells.length === 128")
        b.run("document.getElementById('pause').focus()")
        b.press("Space")
        b.until("!document.getElementById('step').disabled")
        for _ in range(2):  # Step, then the blocks: one stop of the Tab key for all of them
            b.press("Tab")
        self.assertRegex(b.run(label), "^Block 0: ")
        b.until("document.getElementById('block-title').textContent.startsWith('Block 0')")
        b.press("Right", "Right", "Left")
        self.assertRegex(b.run(label), "^Block 1: ")
        b.press("Down")
        self.assertGreater(b.run("document.activeElement.place"), 5)
        b.press("End")
        self.assertRegex(b.run(label), "^Block 127: ")
        b.run("document.getElementById('pause').focus()")
        b.press("Enter")
        b.until("!room.state.is_paused")

    def test_everything_has_a_name(self):
        b = self.browser
        self.open_engine()
        b.until("document.getElementById('chart-rate').getAttribute('aria-label')")
        nameless = b.run(
            "Array.from(document.querySelectorAll('button, input, select, textarea, canvas, dialog, nav, aside'))"
            ".filter(e => !(e.textContent.trim() && e.tagName === 'BUTTON') && !e.getAttribute('aria-label') &&"
            " !e.getAttribute('aria-labelledby') && !(e.labels && e.labels.length) && !e.hidden)"
            ".map(e => e.outerHTML.slice(0, 80))")
        self.assertEqual(nameless, [])
        self.assertEqual(self.count("h1"), 1)
        self.assertEqual(b.run("document.documentElement.lang"), "en")

    def test_phone_width(self):
        b = self.browser
        b.resize(360, 740, mobile=True)
        self.answer("Write `" + "x" * 300 + "` please.")
        self.check_widths("the chat")
        long = "x" * 300
        b.run("(chatView.chat.messages[1].content = arguments[0]) && showMessages()",
              f"`{long}`\n\n```\n{long}\n```\n\n| a | {long} |\n|---|---|\n\n# {long}\n\nhttps://example.org/{long}")
        self.check_widths("long words")
        b.click("#chats-button")
        self.check_widths("the list of chats")
        b.press("Escape")
        self.open_engine()
        self.check_widths("the engine room")
        self.assertFalse(b.run("document.getElementById('chat').checkVisibility()"))
        b.click("#engine-close")
        self.assertTrue(b.run("document.getElementById('chat').checkVisibility()"))
        b.click("#settings-button")
        self.check_widths("the settings")

    def test_dark_and_light(self):
        b = self.browser
        grounds = []
        for scheme in ("light", "dark"):
            b.prefer(scheme)
            grounds.append(b.run("getComputedStyle(document.body).backgroundColor"))
            # WCAG's formula; 4.5 is its bound for text of this size.
            low = b.run("""(() => {
              const light = name => {
                const hex = colour(name).slice(1);
                const [r, g, b] = [0, 2, 4].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
                  .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
                return .2126 * r + .7152 * g + .0722 * b;
              };
              const pairs = [["text", "ground"], ["text", "panel"], ["text", "bubble"], ["text", "sunken"],
                             ["soft", "ground"], ["soft", "panel"], ["soft", "sunken"], ["accent-ink", "accent"],
                             ["accent", "ground"], ["fault", "fault-wash"], ["text", "mark-a"], ["text", "mark-b"]];
              return pairs.filter(([a, b]) => {
                const [x, y] = [light(a), light(b)];
                return (Math.max(x, y) + .05) / (Math.min(x, y) + .05) < 4.5;
              });
            })()""")
            self.assertEqual(low, [], scheme)
        self.assertNotEqual(grounds[0], grounds[1])


class Key(PageTest):
    flags = ("--api-key", "secret", "--engine-room", "view")
    start = "document.getElementById('key').open"

    def tearDown(self):
        pass  # the browser's console has the refusals

    def test_the_key_is_asked_for(self):
        b = self.browser
        b.type("#key-value", "wrong" + browser.KEYS["Enter"])
        b.until("!document.getElementById('key-fault').hidden")
        self.assertIn("does not know this key", b.text("#key-fault"))
        b.type("#key-value", "secret" + browser.KEYS["Enter"])
        b.until("document.getElementById('model').textContent")
        self.assertIn("95", self.answer("What is 37 + 58?"))
        self.assertEqual(b.run("JSON.stringify(localStorage).includes('secret')"), False)
        self.open_engine()
        self.assertTrue(b.run("document.getElementById('controls').hidden"))


class Gone(PageTest):
    def tearDown(self):
        pass  # the browser's console has the failures

    def test_a_server_that_is_gone(self):
        b = self.browser
        self.answer("Hi")
        self.server.terminate()
        self.server.wait()
        self.ask("Are you there?")
        b.until("document.querySelectorAll('.fault:not([hidden])').length")
        self.assertEqual(b.text(".message:last-child .fault"),
                         "The server cannot be reached. Is it still running?")


def main():
    if not browser.find_programs():
        print("note: there is no chromium with chromedriver: the page is not tested")
        sys.exit(SKIPPED)
    try:
        unittest.main(argv=sys.argv, verbosity=1)
    finally:
        if PageTest.browser:
            PageTest.browser.close()


if __name__ == "__main__":
    main()
