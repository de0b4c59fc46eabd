/* Names of models on Hugging Face: "organisation/model", or "organisation/model:Q4_K_M" for one of
 * several GGUF files. Names become parts of paths and of URLs, so only their few characters pass:
 * letters, digits, '_', '-' and '.', never "..", "--" or an empty part. */
#ifndef HUB_HUB_NAME_H
#define HUB_HUB_NAME_H

#include <stdbool.h>

#include "base/err.h"

enum { HUB_NAME_MAX = 200, HUB_QUANT_MAX = 100, HUB_COMMIT_SIZE = 64, HUB_REVISION_MAX = 201 };

struct hub_name {
    char id[HUB_NAME_MAX]; // "Qwen/Qwen3-0.6B"
    char folder[HUB_NAME_MAX + 16]; // in the cache: "models--Qwen--Qwen3-0.6B"
    char quant[HUB_QUANT_MAX]; // behind the colon; "": none
};

// False: the text has not the form of a name.
bool hub_name_parse(struct hub_name *name, const char *text);
// ERR_INVALID unless `revision` can be a branch, a tag or a commit: no "..", no empty part.
MUST_USE enum status hub_revision_check(const char *revision, struct err *err);
bool hub_is_commit(const char *revision); // 40 hexadecimal digits
// Whether a file's name, of a list that a server sent, stays inside the folder that it is put in.
bool hub_file_name_is_safe(const char *name);

#endif
