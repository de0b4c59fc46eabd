/* What GET /tokenizer_info and /props tell of the tokenizer: the model's tokenizer_config.json, and
 * the chat template that chats are rendered with. */
#ifndef SERVER_TOKENIZER_INFO_H
#define SERVER_TOKENIZER_INFO_H

#include <jansson.h>

#include "server/loop/api.h"

// The object in tokenizer_config.json of the model's folder; an empty one where there is none.
// NULL: it cannot be read. The caller's.
json_t *tokenizer_info_read(const char *model_path);
// {"tokenizer_class":...}, without members that name files, and with the template in use.
void tokenizer_info_write(const struct api *api, struct json_out *out);
// A special token of the file, such as "eos_token", as text or null.
void tokenizer_info_write_token(const struct api *api, const char *name, struct json_out *out);
// The template of chats without tools, as text or null.
void tokenizer_info_write_template(const struct api *api, struct json_out *out);

#endif
