/* What the hub answers: the status and the headers that matter here, and the sentence for an answer
 * that is none. All of it is untrusted: every value is bounded and checked by its reader. */
#ifndef HUB_HUB_REPLY_H
#define HUB_HUB_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/hub_cache.h"

enum { HUB_ETAG_MAX = 65 }; // 64 hexadecimal digits

#define HUB_SIZE_UNKNOWN UINT64_MAX

struct hub_reply {
    long http_status;
    // The file's hash, of X-Linked-Etag, else of ETag: sha256 (64 digits) or git's sha1 (40); "":
    // none.
    char etag[HUB_ETAG_MAX];
    bool is_linked; // X-Linked-Etag was there: a later ETag does not count
    uint64_t size; // of X-Linked-Size, else of Content-Length
    bool has_linked_size;
    char commit[HUB_COMMIT_SIZE]; // X-Repo-Commit; "": none
    bool has_range;
    uint64_t range_start; // of Content-Range
    double retry_after; // seconds; below 0: not said
    char error_code[40], error_message[200]; // X-Error-Code, X-Error-Message
};

void hub_reply_init(struct hub_reply *reply);
// Takes one line of the headers, with or without its end.
void hub_reply_take_header(struct hub_reply *reply, const char *line, size_t len);
// For an answer that is no success: ERR_IO or ERR_INVALID with the reason. `file` is what was asked
// for; NULL: the list of files.
enum status hub_reply_refuse(const struct hub_reply *reply, const struct hub_settings *settings,
                             const struct hub_wish *wish, const char *file, struct err *err);

#endif
