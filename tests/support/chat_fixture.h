/* Chat templates for tests: opened and rendered, or the test fails. */
#ifndef SUPPORT_CHAT_FIXTURE_H
#define SUPPORT_CHAT_FIXTURE_H

#include "support/temp_folder.h"
#include "text/chat/chat.h"

// chat_template_open of the model at a path, or of none where it is NULL.
enum status open_template(struct chat_template **out, const char *model, const char *path,
                          struct err *err);
// The template of a folder, or of Jinja source. The caller closes it.
struct chat_template *open_folder(const struct temp_folder *folder);
struct chat_template *open_source(const char *source);
// The chat becomes exactly `want`.
void expect(const struct chat_template *chat_template, const char *chat, const char *want);
// The chat is refused with a message that has `sentence` in it, and the output stays as it was.
void refused(const struct chat_template *chat_template, const char *chat, const char *sentence);
// Opens, expects, closes.
void render_once(const char *source, const char *chat, const char *want);

#endif
