/* Any bytes as a chat template, rendered over a chat with every kind of value in it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json/jread.h"
#include "jinja/jinja.h"

static const char variables_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": \"text\", \"text\": \"part \\u00e9\\u4f60\\ud83d\\ude42\"}]}, "
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
    "\"get\", \"arguments\": {\"n\": 2, \"x\": -1.5e3, \"ok\": true}}}]}], \"tools\": [{}], "
    "\"word\": \"Hello <b>\", \"seq\": [3, 1, 2], \"obj\": {\"b\": 2, \"a\": 1}, \"bos_token\": "
    "\"<s>\", \"big\": 18446744073709551615, \"add_generation_prompt\": true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *variables; // parsed once, never changed by a render
    struct err err = {0};
    if (!variables &&
        jread_request(&variables, variables_text, sizeof variables_text - 1, "variables", &err)) {
        abort();
    }
    struct jinja_template *template = NULL;
    if (jinja_template_parse(&template, (const char *)data, size, "template", &err)) return 0;
    const struct jinja_render_options options = {
        .now = {.tm_year = 126, .tm_mday = 2, .tm_hour = 3, .tm_min = 4, .tm_sec = 5}};
    struct buf out = {0};
    enum status status = jinja_template_render(template, variables, &options, &out, &err);
    if (status && out.len > 0) abort(); // a failed render leaves nothing behind
    buf_fini(&out);
    jinja_template_destroy(template);
    return 0;
}
