/* Reads tokenizer.json. Its two big values, model.vocab and model.merges, are all but a few
 * kilobytes of the file, and are read by hand (base/json/json_span.h). */
#ifndef TEXT_TOKENIZER_JSON_H
#define TEXT_TOKENIZER_JSON_H

#include "base/json/json_span.h"
#include "base/text/buf.h"

struct tokenizer_document {
    json_t *root; // without model.vocab and model.merges; the owner decrefs it
    struct json_span vocab; // an object
    struct json_span merges; // a list
};

// `text` must stay while the spans are used.
MUST_USE enum status tokenizer_document_read(struct tokenizer_document *out, const char *text,
                                             size_t len, const char *what, struct err *err);
void tokenizer_document_fini(struct tokenizer_document *document);

// Reads the entries of an object of integers, or the elements of a list of pairs, one by one.
struct json_reader {
    const char *text, *p, *end;
    const char *what; // the source, and
    const char *name; // which value of it: for errors
    bool started;
    struct buf first, second; // strings without their escapes
};
void json_reader_init(struct json_reader *reader, struct json_span span, const char *what,
                      const char *name);
void json_reader_fini(struct json_reader *reader);
// The next "key": number in reader->first and *number; *found = false after the last.
MUST_USE enum status json_reader_next_entry(struct json_reader *reader, int64_t *number,
                                            bool *found, struct err *err);
// The next "a b" or ["a", "b"] in reader->first and reader->second.
MUST_USE enum status json_reader_next_pair(struct json_reader *reader, bool *found,
                                           struct err *err);

#endif
