"""The page at / in a real browser: the chat, tool calls, the key, faults."""

import json
import tempfile

import browser
from page_fixture import IDLE, PageTest, main
from scripted_model import Script


# Shows a text at once, however long, and returns what `what` says of its element.
SHOW = """(text, what, holder = document.createElement('div')) => {
  showMarkdown(holder, text);
  while (holder.shown.made < holder.shown.pieces.length) {
    late.left = FRAME_MAX;
    renderMore(holder);
  }
  return what(holder);
}"""


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

    def test_settings_are_kept_as_they_are_typed_and_sent(self):
        b = self.browser
        b.click("#settings-button")
        b.type("[name=max_tokens]", "3")
        b.reload()  # without closing them
        b.until(self.start)
        self.answer("Tell me a story.")
        self.assertRegex(b.text(".facts"), "^3 tokens .*cut at max tokens$")

    def test_settings_are_the_samplers_parameters_with_defaults_and_ranges(self):
        b = self.browser
        b.until("document.querySelector('[name=seed]')")
        b.click("#settings-button")
        shown = b.run("Array.from(document.querySelectorAll('#settings input'), e => [e.name, e.placeholder])")
        params = self.server.get("/props")[1]["default_generation_settings"]["params"]
        params["repetition_penalty"] = params.pop("repeat_penalty")
        self.assertEqual(dict(shown), {**{name: str(value) for name, value in params.items()},
                                       "max_tokens": "the rest", "seed": "drawn"})
        fields = b.run("Array.from(document.querySelectorAll('#settings input'), e => [e.name, [e.step, e.min, e.max]])")
        self.assertEqual([dict(fields)[name] for name in ("temperature", "top_p", "top_k", "max_tokens")],
                         [["any", "0", "100"], ["any", "0", "1"], ["1", "-1", "2147483647"], ["1", "1", ""]])

    def test_a_refusal_is_shown_in_the_servers_words(self):
        b = self.browser
        b.run("settings.write({max_tokens: '5000'})")
        self.ask("Hi")
        b.until("document.querySelector('.fault:not([hidden])')")
        self.assertIn("the context holds 1024", b.text(".message .fault"))
        self.assertIn("400", " ".join(b.logs()))  # what the browser itself says of such an answer

    def give_form(self, kind, text):
        """As a user who opens the settings, chooses and types."""
        b = self.browser
        b.click("#settings-button")
        b.run("document.getElementById('form-text').value = ''")
        b.click(f"#form option[value='{kind}']")
        b.type("#form-text", text)

    def test_answers_have_the_form_of_the_settings(self):
        b = self.browser
        schema = '{"type": "object", "properties": {"sum": {"const": 7}}, "required": ["sum"], "additionalProperties": false}'
        cases = [("json", schema, {"sum": 7}), ("regex", "[3-5]{4}x", None), ("choice", "yes sir\nno sir", None)]
        for number, (kind, text, value) in enumerate(cases, 1):
            self.give_form(kind, text)
            self.assertFalse(b.run("document.getElementById('form-text-fault').checkVisibility()"))
            self.leave_settings()
            b.reload()
            b.until(self.start)
            got = self.answer("What is 3 + 4?", number)
            if value:
                self.assertEqual(json.loads(got), value)
            else:
                self.assertRegex(got, "^([3-5]{4}x)$" if kind == "regex" else "^(yes|no) sir$")
        self.give_form("", "ignored")
        self.leave_settings()
        self.assertIn("37 + 58 = 95", self.answer("What is 37 + 58?", 4))

    def test_a_refused_schema_is_shown_in_the_servers_words(self):
        b = self.browser
        self.give_form("json", '{"properties": {"a": {"$ref": "other.json"}}}')
        self.leave_settings()
        self.ask("Hi")
        b.until("document.querySelector('.message .fault:not([hidden])')")
        self.assertIn("#/properties/a", b.text(".message .fault"))
        self.assertIn("other.json", b.text(".message .fault"))
        self.assertIn("400", " ".join(b.logs()))

    def test_a_schema_that_is_not_json(self):
        b = self.browser
        self.give_form("json", "{")
        self.assertIn("The schema in the settings is not JSON", b.text("#form-text-fault"))
        self.assertEqual(b.run("document.getElementById('form-text').getAttribute('aria-invalid')"), "true")
        self.leave_settings()
        self.ask("Hi")
        b.until("document.querySelector('.message .fault:not([hidden])')")
        self.assertIn("not JSON", b.text(".message .fault"))
        self.give_form("regex", "{")  # which is another thing in an expression
        self.assertFalse(b.run("document.getElementById('form-text-fault').checkVisibility()"))

    def test_events_that_are_not_understood_are_a_fault(self):
        b = self.browser
        real = "(window.realFetch ||= fetch)"
        for number, event in enumerate(("null", "[]", "{", '{"choices": [{"delta": {"tool_calls": 5}}]}'), 1):
            # The page's own requests get an answer that no nanovllm server gives.
            b.run(f"void ({real}, window.fetch = async () => new Response(arguments[0]))",
                  f"data: {event}\n\ndata: [DONE]\n\n")
            self.ask("Hi")
            b.until(f"{IDLE} && document.querySelectorAll('.fault:not([hidden])').length === {number}", event)
            self.assertIn("does not understand", b.text(".message:last-child .fault"))
        self.assertEqual(len(b.logs()), 4)  # the page's own words, for whoever looks for the fault

    def test_buttons_of_an_answer_stay_together(self):
        b = self.browser
        self.answer("Hi")
        for width in range(320, 480, 8):
            b.resize(width, 740, mobile=True)
            b.run("document.querySelector('.facts').textContent = '84 tokens · 1,051 a second · first after 12 ms'")
            tops = b.run("Array.from(document.querySelectorAll('.message.assistant .foot button'),"
                         " e => e.getBoundingClientRect().top)")
            self.assertEqual((len(tops), len(set(tops))), (2, 1), width)

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
            got = self.browser.run(f"({SHOW})(arguments[0], holder => holder.firstChild.innerHTML)", text)
            self.assertEqual(got, html, text)

    def test_text_that_is_all_marks_is_shown(self):
        """Each of these would take minutes if its characters were looked at again and again."""
        spaces = " " * 200000
        for text in ("*a " * 100000, "`" * 20000 + "x", "[" * 20000, "> " * 5000, "**" * 10000, "_a" * 20000,
                     f"# a{spaces}b", f"a | b\n-{spaces}x", f"-{spaces}*", "- " * 20000, "1. " * 20000,
                     "\n".join(" " * i + "- a" for i in range(300)), "|" * 20000 + "\n|-|"):
            length = self.browser.run(f"({SHOW})(arguments[0], holder => holder.textContent.length)", text)
            self.assertGreaterEqual(length, 0)

    def test_a_long_text_comes_over_several_frames(self):
        """No frame makes much more than FRAME_MAX characters into elements, whatever the text is."""
        b = self.browser
        lines = {"paragraphs": "some *words* of text\n\n", "one paragraph": "some *words* of text\n",
                 "one line": "some *words* of text ", "a list": "- some *words* of text\n",
                 "a quote": "> some *words* of text\n", "a table": "| some *words* | of text |\n",
                 "code": "some *words* of text\n"}
        for name, line in lines.items():
            head = {"a table": "| a | b |\n|---|---|\n", "code": "```\n"}.get(name, "")
            b.run("void (window.renderReal ||= renderBlock, rendered = 0, renderBlock = (lines, depth) => "
                  "(rendered += lines.join(' ').length * !depth, renderReal(lines, depth)))")
            text = head + line * (200_000 // len(line))
            most = b.run("""((text, holder) => {
              const sizes = [];
              for (showMarkdown(holder, text); holder.shown.made < holder.shown.pieces.length;) {
                rendered = 0; late.left = FRAME_MAX; renderMore(holder); sizes.push(rendered);
              }
              return [Math.max(...sizes), sizes.length, holder.textContent.split('words').length - 1];
            })(arguments[0], document.createElement('div'))""", text)
            self.assertLess(most[0], 10_000, name)
            self.assertGreater(most[1], 10, name)
            self.assertEqual(most[2], text.count("words"), name)

    def test_a_long_answer_is_shown_to_its_end(self):
        b = self.browser
        text = "Some *words*.\n\n" * 5000 + "```\n" + "code\n" * 5000 + "```\n\nThe end."
        b.run("chats.write({id: 'x', title: 't', updated: 1, messages: [{role: 'user', content: 'Hi'},"
              "{role: 'assistant', content: arguments[0]}]})", text)
        b.run("openChat('x')")
        b.until("late.holders.size === 0")
        self.assertTrue(b.run("isNearEnd()"))
        self.assertTrue(b.text(".md").endswith("The end."))
        self.assertEqual(b.run("codeFrom(document.querySelector('.code'))"), "code\n" * 4999 + "code")

    def test_a_text_that_grows_is_looked_at_once(self):
        """Its elements are those of the whole text at any time, and the blocks that it is past are left alone."""
        fault = self.browser.run("""(() => {
          const lines = ['word', '# head', '- item', '1', '1. one', '  more', '> quote', '| a | b |', '|---|---|', '|--x',
                         '```', '~~~ c', '---', '', '', '', '    deep', '**bold', 'text**', '\\r', 'a | b'];
          let seed = 1;
          const draw = count => (seed = seed * 48271 % 2147483647) % count;
          const blocks = holder => Array.from(holder.querySelectorAll('.slice > *'), e => e.outerHTML).join('');
          const finish = holder => { while (holder.shown.made < holder.shown.pieces.length) late.left = FRAME_MAX, renderMore(holder); };
          for (let i = 0; i < 400; i++) {
            const whole = Array.from({length: 12}, () => lines[draw(lines.length)]).join('\\n');
            const grown = document.createElement('div');
            for (let at = 0; at < whole.length; at += 1 + draw(4)) showMarkdown(grown, whole.slice(0, at));
            showMarkdown(grown, whole);
            finish(grown);
            const fresh = document.createElement('div');
            showMarkdown(fresh, whole);
            finish(fresh);
            if (blocks(grown) !== blocks(fresh)) return [whole, blocks(grown), blocks(fresh)];
          }
          let looked = 0;
          const real = splitBlocks;
          splitBlocks = text => (looked += text.length, real(text));
          const holder = document.createElement('div');
          for (let text = ''; text.length < 20000; showMarkdown(holder, text)) text += 'words\\n\\n';
          splitBlocks = real;
          return looked < 20 * 20000 ? null : looked;
        })()""")
        self.assertIsNone(fault)

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
{{ m.role }}: {{ m.content }}{% for call in m.tool_calls or [] %} {{ call.function | tojson }}{% endfor %}{% endfor -%}
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
        self.leave_settings()
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
        self.leave_settings()
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
    flags = ("--engine-room", "control")

    def tearDown(self):
        pass  # the browser's console has the failures

    def test_a_server_that_is_gone(self):
        b = self.browser
        self.answer("Hi")
        self.open_engine()
        self.pause()
        self.server.terminate()
        self.server.wait()
        self.ask("Are you there?")
        b.until("document.querySelectorAll('.fault:not([hidden])').length")
        self.assertEqual(b.text(".message:last-child .fault"),
                         "The server cannot be reached. Is it still running?")
        # What the engine room showed last is no longer so.
        self.assertIn("lost", b.run("document.getElementById('engine-state').className"))
        self.assertTrue(b.run("document.getElementById('step').disabled && document.getElementById('pause').disabled"))
        figures = "Array.from(document.querySelectorAll('.figures dd'), e => e.textContent)"
        self.assertEqual(b.run(figures), 7 * ["–"])
        # Another server at its place is seen again.
        b.run("takeEvent('state', room.state = {...room.state, blocks: 'f'.repeat(128), fills: [], block_size: 16,"
              "is_paused: true})")
        self.assertFalse(b.run("document.getElementById('step').disabled"))
        self.assertNotIn("–", b.run(figures)[1:])


if __name__ == "__main__":
    main()
