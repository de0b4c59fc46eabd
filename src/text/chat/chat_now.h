/* The time that templates see: the clock's, or one that a chat fixes. */
#ifndef TEXT_CHAT_NOW_H
#define TEXT_CHAT_NOW_H

#include "jinja/jinja.h"

struct chat_now {
    struct jinja_render_options options; // tm_zone may point to `zone`: do not copy the struct
    char zone[24];
};

// Local time without a zone, as transformers' datetime.now() has none: %z and %Z are empty.
void chat_now_clock(struct chat_now *now);
// Reads ISO 8601: "2026-01-02T03:04:05", optionally with a fraction and an offset ("Z", "+02:00"),
// or a date alone. ERR_FORMAT for anything else.
MUST_USE enum status chat_now_parse(struct chat_now *now, const char *text, size_t len,
                                    struct err *err);
// Reads the member "now" of a chat; NULL and null stand for the clock.
MUST_USE enum status chat_now_read(struct chat_now *now, const json_t *value, struct err *err);

#endif
