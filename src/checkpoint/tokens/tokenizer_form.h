/* Forms of a tokenizer that a folder may have in place of tokenizer.json. From each of them
 * tokenizer.json is written, and tokenizer_config.json where the folder has none. */
#ifndef CHECKPOINT_TOKENS_TOKENIZER_FORM_H
#define CHECKPOINT_TOKENS_TOKENIZER_FORM_H

#include <jansson.h>

#include "base/err.h"

struct json_out;

struct form_source {
    const char *text; // of the file
    size_t len;
    const char *what; // the file's name, for errors
    const json_t *config; // tokenizer_config.json as jread_text_strings reads it; NULL: none
};

struct tokenizer_form {
    const char *file;
    enum status (*write_tokenizer)(const struct form_source *source, struct json_out *out,
                                   struct err *err);
    // NULL: what is in the folder's tokenizer_config.json cannot be known without it.
    enum status (*write_config)(const struct form_source *source, struct json_out *out,
                                struct err *err);
};

enum { TOKENIZER_FORMS = 3 };
// Where a folder has several, the first one is read.
extern const struct tokenizer_form tokenizer_forms[TOKENIZER_FORMS];

const struct tokenizer_form *tokenizer_form_find(const char *file); // NULL: it is none

MUST_USE enum status tekken_write_tokenizer(const struct form_source *source, struct json_out *out,
                                            struct err *err);
MUST_USE enum status tekken_write_config(const struct form_source *source, struct json_out *out,
                                         struct err *err);
MUST_USE enum status tiktoken_write_tokenizer(const struct form_source *source,
                                              struct json_out *out, struct err *err);
extern const char tiktoken_pattern[]; // cuts words as Kimi K2 and Moonlight do
MUST_USE enum status sentencepiece_write_tokenizer(const struct form_source *source,
                                                   struct json_out *out, struct err *err);
MUST_USE enum status sentencepiece_write_config(const struct form_source *source,
                                                struct json_out *out, struct err *err);

#endif
