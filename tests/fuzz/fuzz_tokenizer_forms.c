/* Arbitrary bytes as each form of a tokenizer that is read in place of tokenizer.json. What is
 * written from an accepted file is JSON; where it is a tokenizer too, it encodes and decodes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "base/json/json_out.h"
#include "checkpoint/tokens/tokenizer_form.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const char *json, size_t len) {
    static const char text[] = "ab <s>The cat\xc3\xa9\xf0\x9f\x99\x82  12";
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    struct token_list ids = {0};
    struct buf out = {0};
    if (tokenizer_parse(&tokenizer, json, len, "input", &err)) {
        CHECK(err.message[0], "%s", "no message");
        return;
    }
    enum status status = tokenizer_encode(tokenizer, text, strlen(text), true, NULL, &ids, &err);
    CHECK(status == OK || status == ERR_INVALID || status == ERR_UNSUPPORTED, "%s", err.message);
    status = tokenizer_decode(tokenizer, ids.ids, ids.len, true, &out, &err);
    CHECK(status == OK, "%s", err.message);
    buf_fini(&out);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
}

static void write_form(const struct tokenizer_form *form, const struct form_source *source) {
    struct json_out out = {0};
    struct err err = {0};
    enum status status = form->write_tokenizer(source, &out, &err);
    CHECK(!status || err.message[0], "%s", "no message");
    if (!status) encode(out.buf.data, out.buf.len);
    json_out_clear(&out);
    json_t *root = NULL;
    if (form->write_config && !form->write_config(source, &out, &err)) {
        CHECK(!jread_text(&root, out.buf.data, out.buf.len, "config", &err), "%s", err.message);
        json_decref(root);
    }
    json_out_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char config_text[] =
        "{\"added_tokens_decoder\": {\"256\": {\"content\": \"<s>\", \"special\": true}}}";
    json_t *config = NULL;
    enum status status =
        jread_text_strings(&config, config_text, strlen(config_text), "config", NULL);
    CHECK(status == OK, "%s", status_name(status));
    struct form_source source = {.text = (const char *)data, .len = size, .what = "input"};
    for (size_t i = 0; i < TOKENIZER_FORMS; i++) {
        source.config = i % 2 ? config : NULL;
        write_form(&tokenizer_forms[i], &source);
    }
    json_decref(config);
    return 0;
}
