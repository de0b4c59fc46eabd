#include "base/jwrite.h"

// json_dumpb writes into memory that is there: twice, for the length and for the text.
enum status jwrite(struct buf *out, const json_t *value, size_t flags, const char *what,
                   struct err *err) {
    size_t len = json_dumpb(value, NULL, 0, flags);
    if (!len) return err_nomem(err, what); // no text is empty
    enum status status = buf_reserve(out, len, err);
    if (status) return status;
    if (json_dumpb(value, out->data + out->len, len, flags) != len) {
        out->data[out->len] = '\0';
        return err_nomem(err, what);
    }
    out->len += len;
    out->data[out->len] = '\0';
    return OK;
}
