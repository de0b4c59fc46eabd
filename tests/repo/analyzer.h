/* Force-included when clang-tidy reads a file: it sees one file at a time, and without this it
 * takes paths on which err_set and its kin return OK. */
#ifndef REPO_ANALYZER_H
#define REPO_ANALYZER_H

#include "base/err.h"

#define err_set(err, status, ...) ((void)err_set(err, status, __VA_ARGS__), (status))
#define err_prefix(err, status, ...) ((void)err_prefix(err, status, __VA_ARGS__), (status))
#define err_nomem(err, what) ((void)err_nomem(err, what), ERR_NOMEM)

#endif
