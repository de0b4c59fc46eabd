"""The page in a real browser: the engine room, keyboard, widths, colours."""

import browser
from page_fixture import IDLE, PageTest, main


# What a reader can scroll up and down: elements whose text is longer than they are high.
SCROLLED = """Array.from(document.querySelectorAll('*')).filter(e => e.checkVisibility() &&
  e.scrollHeight > e.clientHeight + 1 && (e.tagName === 'HTML' || /auto|scroll/.test(getComputedStyle(e).overflowY)))
  .map(e => e.id || e.tagName)"""


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
        b.until("document.getElementById('engine-state').textContent === 'idle'")
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

    def test_a_long_chat_scrolls_in_its_own_place(self):
        b = self.browser
        self.open_engine()
        self.pause()
        b.run("chats.write({id: 'x', title: 't', updated: 1, messages: Array.from({length: 20}, (_, i) => "
              "({role: i % 2 ? 'assistant' : 'user', content: 'Some words.\\n\\n'.repeat(9)}))})")
        b.run("openChat('x')")
        self.assertEqual(b.run(SCROLLED), ["scroll", "engine"])
        b.run("chats.remove('x')")

    def test_sequences_say_which_chat(self):
        b = self.browser
        self.open_engine()
        self.pause()
        self.ask("Tell me a long story about a bear.")
        b.until("document.querySelectorAll('#sequences tr').length === 1")
        b.run("void ask('v1/completions', {body: {prompt: 'x', max_tokens: 2}})")  # somebody else's
        b.until("document.querySelectorAll('#sequences tr').length === 2")
        self.assertEqual(b.run("Array.from(document.querySelectorAll('.asked'), e => e.textContent)"),
                         ["Tell me a long story about a bear.", ""])
        b.click("#pause")
        b.until(IDLE)
        b.until("document.querySelectorAll('#sequences tr').length === 0")

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


class LargeCache(PageTest):
    """Of more blocks than are shown one by one."""

    flags = ("--engine-room", "control")
    num_blocks = 3000

    def open(self):
        self.browser.click("#engine-button")
        self.browser.until("room.letters.length === 3000 && room.cells.length")

    def test_the_map_and_the_slider_choose_the_blocks(self):
        b = self.browser
        self.open()
        first = "document.querySelector('#blocks .cell').getAttribute('aria-label').split(':')[0]"
        self.assertEqual(b.run(first), "Block 0")
        self.assertEqual(b.text("#range-text"), "Shown: 0 to 127 of 3,000; a square of the map is 8 blocks")
        b.run("document.getElementById('range').focus()")
        b.press("End")
        self.assertEqual(b.run(first), "Block 2944")
        self.assertEqual(self.count("#blocks .cell"), 3000 - 2944)
        b.press("Left")
        self.assertEqual(b.run(first), "Block 2816")
        # The second row's first square, where blocks follow those of the first row.
        b.until("document.getElementById('map').style.height")
        b.run("document.getElementById('map').dispatchEvent(new MouseEvent('click', {clientX: "
              "document.getElementById('map').getBoundingClientRect().left + 3, clientY: "
              "document.getElementById('map').getBoundingClientRect().top + 13}))")
        at = b.run("mapColumns(document.getElementById('map'))") * 8
        self.assertEqual(b.run(first), f"Block {at // 128 * 128}")

    def test_the_map_shows_what_is_used(self):
        """One block of many is seen, and all of them fill their square."""
        self.open()
        colours = self.browser.run("""((canvas, letters) => {
          drawMap(canvas, letters, 0, 0);
          const {width, data} = canvas.getContext('2d').getImageData(0, 0, 40, 10);
          const at = (x, y) => data.slice(4 * (y * width + x), 4 * (y * width + x) + 3).join();
          return [at(4, 7), at(4, 1), at(14, 7), at(14, 1), at(24, 7), at(34, 7)];
        })(document.getElementById('map'), Array.from('u' + 'f'.repeat(127) + 'p'.repeat(128) + 's'.repeat(128) + 'f'.repeat(40000)))""")
        used, free, shared = colours[0], colours[1], colours[4]
        self.assertEqual(colours, [used, free, used, used, shared, free])
        self.assertEqual(len({used, free, shared}), 3)

    def test_one_thing_scrolls_on_a_narrow_screen(self):
        b = self.browser
        self.open()
        self.ask("Tell me a long story about a bear.")
        b.until(IDLE)
        # As with many sequences, and a block of many lines.
        b.run("clearInterval(room.timer) || room.controller.abort()")
        b.run("showSequences({...room.state, sequences: Array.from({length: 40}, (_, id) => ({id, tokens: 1,"
              "computed: 1, cached: 0, blocks: []}))}) || byId('block-text').append('a\\n'.repeat(60))")
        for width in (360, 1000):
            b.resize(width, 740, mobile=width < 500)
            self.assertEqual(b.run(SCROLLED), ["engine"], width)
            self.check_widths(width)

    def test_a_marked_sequence_is_shown(self):
        b = self.browser
        self.open()
        b.run("document.getElementById('range').focus()")
        b.press("End")
        self.pause()
        self.ask("Tell me a long story about a wolf.")
        b.until("document.querySelectorAll('#sequences tr').length === 1")
        b.click("#step")
        b.until("room.state.sequences[0].blocks.length")
        self.assertEqual(self.count("#blocks .mine"), 0)
        b.run("document.querySelector('#sequences button').click()")
        self.assertGreater(self.count("#blocks .mine"), 0)
        b.click("#stop")


if __name__ == "__main__":
    main()
