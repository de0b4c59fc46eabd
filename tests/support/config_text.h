/* Made-up config.json texts: a small valid one with some keys changed, and what parsing it must
 * give. */
#ifndef SUPPORT_CONFIG_TEXT_H
#define SUPPORT_CONFIG_TEXT_H

#include "base/err.h"
#include "checkpoint/model_config.h"

struct field {
    const char *key;
    const char *value; // JSON; NULL: the key is absent
};

enum { CHANGES_MAX = 6 };

struct refusal {
    struct field changes[CHANGES_MAX];
    enum status status;
    const char *words; // that the message must contain, separated by '|'
};

// A valid configuration of the required keys, with some changed or added. The caller frees it.
char *make_config(const struct field changes[CHANGES_MAX]);
// Each fails the test if its expectation is not met.
struct model_config parse_ok(const struct field changes[CHANGES_MAX]);
void parse_path(struct model_config *config, const char *path);
void expect_words(const struct err *err, const char *words);
void text_refused(const char *text, enum status status, const char *words);
void refuse_all(const struct refusal *cases, size_t count);

#define PARSE_OK(...) parse_ok((const struct field[CHANGES_MAX]){__VA_ARGS__})
#define REFUSE_ALL(cases) refuse_all(cases, sizeof(cases) / sizeof((cases)[0]))

#endif
