/* Errors as values: every fallible function returns enum status and takes a `struct err *` last.
 *
 * The place that detects a fault writes the sentence with err_set; callers pass the status up
 * unchanged, or put their own context in front with err_prefix. `err` may be NULL everywhere.
 * Broken invariants are not errors: see CHECK in check.h. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/compiler.h"

enum status {
    OK = 0,
    ERR_INVALID, // an argument or request that can never be served
    ERR_FORMAT, // a file or text that breaks its format's rules
    ERR_IO, // the operating system refused: open, read, map, write
    ERR_NOMEM, // host or device memory did not suffice
    ERR_CAPACITY, // a bounded resource is full now; retry later
    ERR_UNSUPPORTED, // valid input that this build or version cannot run
    ERR_DEVICE, // the accelerator or a worker failed; sticky
    ERR_INTERRUPTED, // the caller asked the call to end: interrupt.h
};

struct err {
    enum status status;
    char message[496]; // one sentence, no trailing full stop or newline, NUL-terminated
};

// Writes the message and returns `status`, so that a fault reads
//     return err_set(err, ERR_FORMAT, "tensor %s is %s, want %s", ...);
// Arguments may be unchecked strings: the message is escaped to one printable line (sentence.h). A
// longer one is cut.
enum status err_set(struct err *err, enum status status, const char *format, ...) PRINTF_LIKE(3, 4);

// Puts "<formatted>: " in front of the message and returns `status`.
enum status err_prefix(struct err *err, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

// The allocation failure every module reports: "out of memory: <what>".
enum status err_nomem(struct err *err, const char *what);

// "invalid", "format", ...: stable lower-case names for logs and JSON.
const char *status_name(enum status status);

#endif
