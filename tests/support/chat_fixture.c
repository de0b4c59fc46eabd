#include "support/chat_fixture.h"

#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "checkpoint/checkpoint.h"
#include "support/cmocka_all.h"

enum status open_template(struct chat_template **out, const char *model, const char *path,
                          struct err *err) {
    struct checkpoint *checkpoint = NULL;
    *out = NULL;
    enum status status = model ? checkpoint_open(&checkpoint, model, err) : OK;
    if (!status) status = chat_template_open(out, checkpoint, path, err);
    checkpoint_close(checkpoint);
    return status;
}

struct chat_template *open_folder(const struct temp_folder *folder) {
    struct chat_template *chat_template = NULL;
    struct err err = {0};
    if (open_template(&chat_template, folder->path, NULL, &err)) fail_msg("%s", err.message);
    return chat_template;
}

struct chat_template *open_source(const char *source) {
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "chat_template.jinja", source);
    struct chat_template *chat_template = open_folder(&folder);
    temp_folder_remove(&folder);
    return chat_template;
}

// A parsed chat has the same prompt, or the same fault, as its text, and stays as it is.
static void check_parsed(const struct chat_template *chat_template, const char *chat,
                         enum status want, const struct buf *prompt, const struct err *fault) {
    json_t *tree = NULL;
    size_t memory_left = jread_request_memory(strlen(chat));
    if (jread_request_part(&tree, chat, strlen(chat), &memory_left, "the chat", NULL)) return;
    struct buf before = {0}, after = {0}, out = {0};
    struct err err = {0};
    size_t flags = JSON_ENCODE_ANY;
    assert_int_equal(jwrite(&before, tree, flags, "chat", NULL), OK);
    enum status status =
        chat_template_render_json(chat_template, tree, memory_left, NULL, &out, &err);
    assert_int_equal(status, want);
    if (want) {
        assert_string_equal(err.message, fault->message);
    } else {
        assert_int_equal(out.len, prompt->len);
        assert_memory_equal(out.data, prompt->data, out.len);
    }
    assert_int_equal(jwrite(&after, tree, flags, "chat", NULL), OK);
    assert_string_equal(before.data, after.data);
    json_decref(tree);
    buf_fini(&before);
    buf_fini(&after);
    buf_fini(&out);
}

void expect(const struct chat_template *chat_template, const char *chat, const char *want) {
    struct buf out = {0};
    struct err err = {0};
    if (chat_template_render(chat_template, chat, strlen(chat), NULL, &out, &err)) {
        fail_msg("%s: %s", chat, err.message);
    }
    assert_string_equal(out.len ? out.data : "", want);
    check_parsed(chat_template, chat, OK, &out, NULL);
    buf_fini(&out);
}

void refused(const struct chat_template *chat_template, const char *chat, const char *sentence) {
    struct buf out = {0};
    struct err err = {0};
    assert_int_equal(buf_append_str(&out, "before", NULL), OK);
    enum status status = chat_template_render(chat_template, chat, strlen(chat), NULL, &out, &err);
    if (!status) fail_msg("accepted: %s", chat);
    if (!strstr(err.message, sentence)) {
        fail_msg("%s: \"%s\" does not say \"%s\"", chat, err.message, sentence);
    }
    assert_string_equal(out.data, "before");
    assert_int_equal(out.len, 6);
    check_parsed(chat_template, chat, status, NULL, &err);
    buf_fini(&out);
}

void render_once(const char *source, const char *chat, const char *want) {
    struct chat_template *chat_template = open_source(source);
    expect(chat_template, chat, want);
    chat_template_close(chat_template);
}
