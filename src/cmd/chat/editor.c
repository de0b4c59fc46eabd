/* libedit with a reader of our own. It waits for the keyboard and for signals, and decodes UTF-8 in
 * any locale. A signal that ends the line reaches libedit as the key ^C: only libedit knows where
 * the cursor is, and so can move it out of the line. */
#include "cmd/chat/editor.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os/file.h"
#include "base/os/write_whole.h"
#include "cmd/chat/command.h"
#include "cmd/chat/messages.h"
#include "cmd/chat/signals.h"
#include "text/unicode/unicode.h"

// ---- history ----

enum status chat_history_path(char *path, size_t size, const char *state_home, const char *home,
                              struct err *err) {
    static const char name[] = "nanovllm/chat_history";
    path[0] = '\0';
    enum status status = OK;
    if (state_home && state_home[0] == '/') {
        status = file_join(path, size, state_home, name, err);
    } else if (home && home[0] == '/') {
        char folder[FILE_PATH_MAX];
        status = file_join(folder, sizeof folder, home, ".local/state", err);
        if (!status) status = file_join(path, size, folder, name, err);
    }
    if (status || !path[0]) return status;
    return file_make_folders(path, err);
}

static enum status unescape(struct buf *out, const char *line, size_t len, struct err *err) {
    buf_clear(out);
    enum status status = buf_reserve(out, len, err);
    for (size_t i = 0; i < len && !status; i++) {
        char c = line[i];
        if (c == '\\' && i + 1 < len) c = line[++i] == 'n' ? '\n' : line[i];
        if (c) status = buf_append(out, &c, 1, err);
    }
    return status;
}

static enum status hand_out(const char *line, size_t len, struct buf *scratch,
                            chat_history_fn entry, void *user_data, struct err *err) {
    enum status status = unescape(scratch, line, len, err);
    if (status || !scratch->len) return status;
    // Leaves out an entry that is not valid UTF-8, because the terminal gets only text.
    size_t valid = utf8_valid_prefix(scratch->data, scratch->len);
    return valid == scratch->len ? entry(user_data, scratch->data, scratch->len, err) : OK;
}

// Returns the start of the last CHAT_HISTORY_ENTRIES_MAX lines.
static size_t newest_lines(const struct buf *text) {
    size_t start = text->len, num_lines = 0;
    while (start > 0) {
        bool newline = text->data[start - 1] == '\n' && start < text->len;
        if (newline && ++num_lines == CHAT_HISTORY_ENTRIES_MAX) break;
        start--;
    }
    return start;
}

static enum status load_lines(const struct buf *text, size_t start, chat_history_fn entry,
                              void *user_data, struct err *err) {
    struct buf scratch = {0};
    enum status status = OK;
    while (start < text->len && !status) {
        const char *line = text->data + start;
        const char *newline = memchr(line, '\n', text->len - start);
        size_t len = newline ? (size_t)(newline - line) : text->len - start;
        status = hand_out(line, len, &scratch, entry, user_data, err);
        start += len + 1;
    }
    buf_fini(&scratch);
    return status;
}

enum status chat_history_load(const char *path, chat_history_fn entry, void *user_data,
                              struct err *err) {
    bool present;
    enum status status = file_is_present(path, &present, err);
    if (status || !present) return status;
    struct buf text = {0};
    status = file_read(&text, path, err);
    size_t start = newest_lines(&text);
    if (!status) status = load_lines(&text, start, entry, user_data, err);
    if (!status && start) {
        status = chat_file_write(path, text.data + start, text.len - start, true, err);
    }
    buf_fini(&text);
    return status;
}

enum status chat_history_append(const char *path, const char *entry, size_t len, struct err *err) {
    if (len > CHAT_HISTORY_ENTRY_BYTES_MAX) return OK;
    struct buf line = {0};
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        if (entry[i] == '\n') {
            status = buf_append(&line, "\\n", 2, err);
        } else {
            if (entry[i] == '\\') status = buf_append(&line, "\\", 1, err);
            if (!status) status = buf_append(&line, entry + i, 1, err);
        }
    }
    if (!status) status = buf_append(&line, "\n", 1, err);
    // Appends in one write, so that lines of several chats do not mix.
    int fd = status ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (!status && (fd < 0 || !write_whole(fd, line.data, line.len))) {
        status = err_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    buf_fini(&line);
    return status;
}

// ---- the editor ----

enum { READ_BYTES = 4096, REPLACEMENT = 0xfffd, PASTE_CHARS_MAX = 4 << 20 };

static const wchar_t key_interrupt = L'\003', key_escape = L'\033';
static const wchar_t paste_end[] = L"\033[201~";

struct wide {
    wchar_t *data; // [len], and a NUL
    size_t len, capacity;
};

struct chat_editor {
    EditLine *el;
    HistoryW *history;
    const char *history_path; // borrowed; "": none
    int fd; // the terminal, opened a second time to be non-blocking
    bool escapes; // the terminal understands ANSI's
    wchar_t prompt[16];
    unsigned char bytes[READ_BYTES]; // [num_bytes] read, not yet decoded from `at` on
    size_t at, num_bytes;
    bool at_end; // no more input
    bool interrupted, empty; // by the last line
    uint64_t num_chars; // read since the start
    uint64_t tab_at; // num_chars after the last Tab that could add nothing; 0: none
    struct wide wide; // pastes and history entries
    struct buf line;
};

static struct chat_editor *editor_of(EditLine *el) {
    void *editor = NULL;
    el_wget(el, EL_CLIENTDATA, &editor);
    return editor;
}

static void write_terminal(const char *text) {
    ssize_t written = write(STDOUT_FILENO, text, strlen(text));
    (void)written; // the next read finds a terminal that is gone
}

// Bracketed paste: the terminal marks where a paste begins and ends.
static void set_paste_marks(const struct chat_editor *editor, bool on) {
    if (editor->escapes) write_terminal(on ? "\033[?2004h" : "\033[?2004l");
}

static bool wide_reserve(struct wide *wide, size_t extra) {
    size_t needed = wide->len + extra + 1;
    if (needed <= wide->capacity) return true;
    size_t capacity = wide->capacity ? wide->capacity : 256;
    while (capacity < needed) capacity *= 2;
    wchar_t *data = realloc(wide->data, capacity * sizeof *data);
    if (!data) return false;
    wide->data = data;
    wide->capacity = capacity;
    return true;
}

static bool wide_from_utf8(struct wide *wide, const char *text, size_t len) {
    wide->len = 0;
    if (!wide_reserve(wide, len)) return false;
    for (size_t i = 0, size; i < len; i += size) {
        wide->data[wide->len++] = (wchar_t)utf8_decode((const unsigned char *)text + i, &size);
    }
    wide->data[wide->len] = L'\0';
    return true;
}

static void suspend(EditLine *el) {
    el_wset(el, EL_PREP_TERM, 0);
    set_paste_marks(editor_of(el), false);
    chat_signals_suspend();
    set_paste_marks(editor_of(el), true);
    el_wset(el, EL_PREP_TERM, 1);
    el_wset(el, EL_REFRESH);
}

// Handles signals while a line is edited. False: the line ends.
static bool attend_signals(EditLine *el) {
    chat_signals_drain();
    if (chat_signals_ended() || chat_signals_interrupted()) return false;
    if (chat_signals_take_suspend()) suspend(el);
    if (chat_signals_take_redraw()) {
        // Another program may have changed the terminal's modes while this one was stopped.
        el_wset(el, EL_PREP_TERM, 0);
        el_wset(el, EL_PREP_TERM, 1);
        el_wset(el, EL_REFRESH);
    }
    if (chat_signals_take_resize()) {
        // libedit forgets its drawing and draws anew; rows below the cursor would appear twice.
        if (editor_of(el)->escapes) write_terminal("\r\033[J");
        el_resize(el);
        el_wset(el, EL_REFRESH);
    }
    return true;
}

// Reads once more into the buffer, of which only the last `kept` bytes are not decoded yet. False:
// a signal or the end.
static bool fill(EditLine *el, struct chat_editor *editor) {
    size_t kept = editor->num_bytes - editor->at;
    memmove(editor->bytes, editor->bytes + editor->at, kept);
    editor->at = 0;
    editor->num_bytes = kept;
    for (;;) {
        if (!attend_signals(el)) return false;
        struct pollfd fds[2] = {{.fd = editor->fd, .events = POLLIN},
                                {.fd = chat_signals_fd(), .events = POLLIN}};
        if (poll(fds, 2, -1) <= 0 || !fds[0].revents) continue;
        // On Ctrl-C the kernel drops typed input, perhaps at this moment.
        ssize_t n = read(editor->fd, editor->bytes + kept, READ_BYTES - kept);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        editor->at_end = n <= 0;
        if (n <= 0) return false;
        editor->num_bytes += (size_t)n;
        return true;
    }
}

static size_t utf8_size(unsigned char lead) {
    if (lead < 0xc2 || lead > 0xf4) return 1;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// Takes one character from the buffer. Reads more while it is incomplete; false as in fill.
static bool next_char(EditLine *el, struct chat_editor *editor, wchar_t *out) {
    if (editor->at == editor->num_bytes && !fill(el, editor)) return false;
    size_t size = utf8_size(editor->bytes[editor->at]), have = 1;
    while (have < size) {
        if (editor->at + have == editor->num_bytes && !fill(el, editor)) return false;
        if ((editor->bytes[editor->at + have] & 0xc0) != 0x80) break;
        have++;
    }
    const unsigned char *text = editor->bytes + editor->at;
    bool valid = have == size && utf8_valid_prefix((const char *)text, size) == size;
    *out = valid ? (wchar_t)utf8_decode(text, &size) : REPLACEMENT;
    editor->at += valid ? size : have;
    return true;
}

// An el_rfunc_t: 1 a character, 0 the end.
static int read_char(EditLine *el, wchar_t *out) {
    struct chat_editor *editor = editor_of(el);
    if (!attend_signals(el) || !next_char(el, editor, out)) {
        if (chat_signals_ended() || !chat_signals_interrupted()) return 0;
        *out = key_interrupt;
    }
    editor->num_chars++;
    return 1;
}

// ^C, typed or from the signal: drops the line's text and ends the line.
static unsigned char interrupt_key(EditLine *el, int key) {
    (void)key;
    struct chat_editor *editor = editor_of(el);
    const LineInfoW *info = el_wline(el);
    editor->interrupted = true;
    editor->empty = info->lastchar == info->buffer;
    chat_signals_clear_interrupt();
    // Input typed ahead belongs to the cleared line, so it is dropped too. Enter ends the line,
    // because libedit's function for it moves the cursor below all rows of the line.
    editor->at = editor->num_bytes = 0;
    el_wpush(el, L"\n");
    return CC_NORM;
}

static bool is_paste_control(wchar_t c) {
    return (c < L' ' && c != L'\n' && c != L'\t') || (c >= 0x7f && c < 0xa0);
}

// Inserts everything up to the paste's end mark as it is, including newlines.
static unsigned char paste_key(EditLine *el, int key) {
    (void)key;
    struct chat_editor *editor = editor_of(el);
    struct wide *wide = &editor->wide;
    wide->len = 0;
    size_t matched = 0; // number of the mark's characters that were just read
    while (paste_end[matched]) {
        wchar_t c = L'\0';
        if (el_wgetc(el, &c) != 1 || c == key_interrupt) return CC_REFRESH_BEEP;
        matched = c == paste_end[matched] ? matched + 1 : c == key_escape;
        if (wide->len >= PASTE_CHARS_MAX) continue; // more than any model reads
        if (!wide_reserve(wide, 1)) return CC_REFRESH_BEEP;
        wide->data[wide->len++] = c == L'\r' ? L'\n' : c;
    }
    if (wide->len >= PASTE_CHARS_MAX) return CC_REFRESH_BEEP;
    wide->len -= matched;
    for (size_t i = 0; i < wide->len; i++) {
        if (is_paste_control(wide->data[i])) wide->data[i] = REPLACEMENT;
    }
    // Drops a newline at the end: the user presses Enter to send.
    while (wide->len && wide->data[wide->len - 1] == L'\n') wide->len--;
    wide->data[wide->len] = L'\0';
    if (wide->len && el_winsertstr(el, wide->data) != 0) return CC_REFRESH_BEEP;
    return CC_REFRESH;
}

static bool begins(const char *name, const wchar_t *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (!name[i] || (wchar_t)name[i] != text[i]) return false;
    }
    return true;
}

// Prints the commands that begin with `text` in one line below the edited one.
static void list_names(const wchar_t *text, size_t len) {
    const char *name, *between = "\n";
    for (size_t i = 0; (name = chat_command_name(i)); i++) {
        if (!begins(name, text, len)) continue;
        write_terminal(between);
        write_terminal(name);
        between = "  ";
    }
    write_terminal("\n");
}

// For a Tab that can add nothing: the second in a row lists the candidates.
static unsigned char ambiguous_tab(struct chat_editor *editor, const LineInfoW *info) {
    bool is_second = editor->tab_at && editor->num_chars == editor->tab_at + 1;
    editor->tab_at = editor->num_chars;
    if (!is_second) return CC_ERROR;
    list_names(info->buffer, (size_t)(info->cursor - info->buffer));
    return CC_REDISPLAY;
}

// Tab: adds the characters that all matching command names share.
static unsigned char complete_key(EditLine *el, int key) {
    (void)key;
    const LineInfoW *info = el_wline(el);
    size_t len = (size_t)(info->cursor - info->buffer), common = 0;
    const char *name, *first = NULL;
    size_t num_names = 0;
    for (size_t i = 0; (name = chat_command_name(i)); i++) {
        if (!begins(name, info->buffer, len)) continue;
        if (num_names++ == 0) {
            first = name;
            common = strlen(name);
        }
        size_t same = 0;
        while (same < common && name[same] == first[same]) same++;
        common = same;
    }
    if (!first || info->cursor != info->lastchar) return CC_ERROR;
    wchar_t more[32];
    size_t num_more = 0;
    // On an empty line Tab adds nothing, because the line may become a message.
    for (size_t i = len; len && i < common && num_more < ARRAY_LEN(more) - 2; i++) {
        more[num_more++] = (wchar_t)first[i];
    }
    if (num_names == 1) more[num_more++] = L' ';
    if (!num_more) return ambiguous_tab(editor_of(el), info);
    more[num_more] = L'\0';
    return el_winsertstr(el, more) == 0 ? CC_REFRESH : CC_ERROR;
}

static wchar_t *prompt_text(EditLine *el) {
    return editor_of(el)->prompt;
}

static enum status take_entry(void *user_data, const char *text, size_t len, struct err *err) {
    struct chat_editor *editor = user_data;
    HistEventW event;
    if (!wide_from_utf8(&editor->wide, text, len)) return err_nomem(err, "history");
    if (history_w(editor->history, &event, H_ENTER, editor->wide.data) == -1) {
        return err_nomem(err, "history");
    }
    return OK;
}

static void bind(EditLine *el, const wchar_t *key, const wchar_t *function) {
    el_wset(el, EL_BIND, key, function, NULL);
}

static void bind_keys(EditLine *el) {
    el_wset(el, EL_EDITOR, L"emacs"); // first: it resets the keys
    el_wset(el, EL_ADDFN, L"chat-interrupt", L"Drop the line", interrupt_key);
    el_wset(el, EL_ADDFN, L"chat-paste", L"Insert a paste", paste_key);
    el_wset(el, EL_ADDFN, L"chat-complete", L"Complete a command", complete_key);
    // The same keys as in bash.
    bind(el, L"^R", L"em-inc-search-prev");
    bind(el, L"^W", L"ed-delete-prev-word");
    bind(el, L"^U", L"vi-kill-line-prev");
    el_source(el, NULL); // the user's ~/.editrc
    bind(el, L"^C", L"chat-interrupt");
    bind(el, L"\\e[200~", L"chat-paste");
    bind(el, L"^I", L"chat-complete");
}

// libedit takes character widths from the locale, and prints UTF-8 only in a UTF-8 locale.
static void choose_locale(void) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

// Standard input itself must stay blocking, because other programs share it.
static int open_terminal(void) {
    const char *name = ttyname(STDIN_FILENO);
    int fd = name ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    return fd >= 0 ? fd : STDIN_FILENO;
}

static enum status start(struct chat_editor *editor, struct err *err) {
    choose_locale();
    editor->fd = open_terminal();
    editor->el = el_init("nanovllm", stdin, stdout, stderr);
    editor->history = history_winit();
    if (!editor->el || !editor->history) return err_nomem(err, "line editor");
    HistEventW event;
    history_w(editor->history, &event, H_SETSIZE, CHAT_HISTORY_ENTRIES_MAX);
    history_w(editor->history, &event, H_SETUNIQUE, 1);
    el_wset(editor->el, EL_CLIENTDATA, editor);
    el_wset(editor->el, EL_HIST, history_w, editor->history);
    el_wset(editor->el, EL_PROMPT, prompt_text);
    el_wset(editor->el, EL_GETCFN, read_char);
    bind_keys(editor->el);
    if (!editor->history_path[0]) return OK;
    return chat_history_load(editor->history_path, take_entry, editor, err);
}

enum status chat_editor_create(struct chat_editor **out, const char *history_path, bool escapes,
                               struct err *err) {
    struct chat_editor *editor = calloc(1, sizeof *editor);
    *out = editor;
    if (!editor) return err_nomem(err, "line editor");
    editor->history_path = history_path;
    editor->escapes = escapes;
    enum status status = start(editor, err);
    if (!status) return OK;
    chat_editor_destroy(editor);
    *out = NULL;
    return status;
}

void chat_editor_destroy(struct chat_editor *editor) {
    if (!editor) return;
    if (editor->el) el_end(editor->el);
    if (editor->history) history_wend(editor->history);
    if (editor->fd != STDIN_FILENO) close(editor->fd);
    free(editor->wide.data);
    buf_fini(&editor->line);
    free(editor);
}

static enum status take_line(struct chat_editor *editor, const wchar_t *text, size_t len,
                             struct err *err) {
    buf_clear(&editor->line);
    enum status status = buf_reserve(&editor->line, 4 * len, err);
    if (len && text[len - 1] == L'\n') len--;
    for (size_t i = 0; i < len && !status; i++) {
        char bytes[4];
        status = buf_append(&editor->line, bytes, utf8_write((uint32_t)text[i], bytes), err);
    }
    return status;
}

enum status chat_editor_read(struct chat_editor *editor, const char *prompt,
                             struct chat_editor_line *line, struct err *err) {
    size_t i = 0;
    for (; prompt[i] && i + 1 < ARRAY_LEN(editor->prompt); i++) {
        editor->prompt[i] = (wchar_t)prompt[i];
    }
    editor->prompt[i] = L'\0';
    editor->interrupted = false;
    chat_signals_clear_interrupt();
    chat_signals_prompt_begin();
    // Set before the prompt is printed, so that the editor gets even the first key after it.
    el_wset(editor->el, EL_PREP_TERM, 1);
    set_paste_marks(editor, true);
    int len = 0;
    const wchar_t *text = el_wgets(editor->el, &len);
    set_paste_marks(editor, false);
    chat_signals_prompt_end();
    *line = (struct chat_editor_line){.state = CHAT_EDITOR_END, .text = ""};
    if (editor->interrupted) {
        line->state = CHAT_EDITOR_INTERRUPTED;
        line->empty = editor->empty;
        return OK;
    }
    if (!text || len <= 0) {
        write_terminal("\n"); // the cursor is after the prompt
        return OK;
    }
    enum status status = take_line(editor, text, (size_t)len, err);
    line->state = CHAT_EDITOR_LINE;
    line->text = editor->line.data ? editor->line.data : "";
    line->len = editor->line.len;
    return status;
}

enum status chat_editor_remember(struct chat_editor *editor, const char *text, size_t len,
                                 struct err *err) {
    enum status status = take_entry(editor, text, len, err);
    if (status || !editor->history_path[0]) return status;
    status = chat_history_append(editor->history_path, text, len, err);
    if (status) editor->history_path = "";
    return status;
}
