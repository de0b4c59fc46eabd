// Chats as JSON over templates of different tastes: any bytes give a prompt or one sentence, and a
// refused chat adds nothing to what was there.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char strings_only[] =
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] + '' }}{% endfor %}";
static const char parts[] = "{% for m in messages %}{% if m.content is string %}{{ m.content | "
                            "trim }}{% else %}{% for p in "
                            "m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}";
static const char with_tools[] =
    "{{ tools | tojson }}{% for m in messages %}{% for c in m.tool_calls or [] %}{{ "
    "c.function.arguments.items() | list }}{% endfor %}{{ m }}{% endfor %}{{ documents }}";
static const char with_time[] =
    "{{ strftime_now('%c %f %z') }}{{ x }}{{ messages | map(attribute='role') | list }}";
static const char *const sources[] = {strings_only, parts, with_tools, with_time};
enum { NUM_SOURCES = ARRAY_LEN(sources) };

// mkstemp wants six marks, which in one piece read as a sign of unfinished work.
static struct chat_template *open_source(const char *source) {
    char path[] = "/tmp/nanovllm-fuzz-chat-"
                  "XX"
                  "XX"
                  "XX";
    int fd = mkstemp(path);
    CHECK(fd >= 0, "mkstemp failed");
    size_t len = strlen(source);
    CHECK(write(fd, source, len) == (ssize_t)len, "len=%zu", len);
    close(fd);
    struct chat_template *chat_template = NULL;
    struct err err = {0};
    CHECK(chat_template_open(&chat_template, NULL, path, &err) == OK, "%s", err.message);
    unlink(path);
    return chat_template;
}

// Opened once and kept: the fuzzer calls the same process again and again.
static struct chat_template *const *templates(void) {
    static struct chat_template *opened[NUM_SOURCES];
    for (size_t i = 0; i < NUM_SOURCES && !opened[i]; i++) opened[i] = open_source(sources[i]);
    return opened;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct chat_template *const *opened = templates();
    for (size_t i = 0; i < NUM_SOURCES; i++) {
        struct buf out = {0};
        struct err err = {0};
        CHECK(buf_append_str(&out, "before", NULL) == OK, "out of memory");
        enum status status =
            chat_template_render(opened[i], (const char *)data, size, NULL, &out, &err);
        CHECK(memcmp(out.data, "before", 6) == 0, "%s", out.data);
        CHECK(status ? out.len == 6 && err.message[0] : out.len >= 6, "%s", err.message);
        buf_clear(&out);
        err = (struct err){0};
        status = chat_template_render_raw(opened[i], (const char *)data, size, NULL, &out, &err);
        CHECK(!status || err.message[0], "a fault without a sentence");
        buf_fini(&out);
    }
    return 0;
}
