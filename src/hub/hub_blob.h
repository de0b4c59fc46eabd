/* One file of a model on its way into the cache: blobs/<etag>.incomplete grows under the lock of
 * its name, is checked against size and hash, becomes blobs/<etag>, and the snapshot gets a link to
 * it. What is cut off stays and is continued; a file with a wrong hash is deleted. On a file system
 * without flock each download writes a file of its own, and what is cut off waits under another
 * name, where only this program looks for it. */
#ifndef HUB_HUB_BLOB_H
#define HUB_HUB_BLOB_H

#include <time.h>

#include "hub/hub_download.h"
#include "hub/hub_reply.h"

struct hub_library;

// The model's folder in the cache.
struct hub_repo {
    char root[FILE_PATH_MAX]; // the cache, without links
    char folder[FILE_PATH_MAX]; // <root>/models--a--b
    char locks[FILE_PATH_MAX]; // <root>/.locks/models--a--b
    char commit[HUB_COMMIT_SIZE];
    const struct hub_library *library;
    double timeout_seconds;
};

// Makes the folders. ERR_INVALID: one of them is a link out of the cache.
MUST_USE enum status hub_repo_make(struct hub_repo *repo, const struct hub_settings *settings,
                                   const struct hub_name *name, struct err *err);
// Writes refs/<revision>, unless that is the commit itself.
MUST_USE enum status hub_repo_write_ref(const struct hub_repo *repo, const char *revision,
                                        struct err *err);
// Before the first of the wanted files comes: keeps the names of the texts among them, so that a
// download that ends early is not taken for a model (hub_cache.c). hub_repo_end forgets them.
MUST_USE enum status hub_repo_begin(const struct hub_repo *repo, const struct hub_files *files,
                                    struct err *err);
void hub_repo_end(const struct hub_repo *repo);
// Whether the snapshot of repo->commit has the file.
bool hub_repo_has(const struct hub_repo *repo, const char *name);
// ERR_IO: less than `bytes` are free on the cache's disk.
MUST_USE enum status hub_repo_check_space(const struct hub_repo *repo, uint64_t bytes,
                                          struct err *err);

struct hub_blob {
    const struct hub_repo *repo;
    const char *name; // the file's, in the snapshot
    char etag[HUB_ETAG_MAX];
    uint64_t size;
    uint64_t num_bytes; // that are on the disk
    uint64_t num_hashed; // of them, from the first
    void *digest; // of the hashed ones
    int fd, lock; // -1: closed
    char end[32]; // of the growing file's name, behind the etag
    bool was_wrong; // the hash was wrong once
    double busy_since; // another program has the lock and makes no progress; 0: not
    uint64_t busy_bytes; // it had written so many
    struct timespec busy_touched; // and was seen alive then
};

enum hub_blob_state {
    HUB_BLOB_OPEN,
    HUB_BLOB_DONE,
    HUB_BLOB_BUSY,
    HUB_BLOB_HASHING,
    HUB_BLOB_FAILED
};

void hub_blob_init(struct hub_blob *blob, const struct hub_repo *repo, const char *name);
void hub_blob_close(struct hub_blob *blob); // keeps what was written, and gives the lock back
// Bytes of the file that the cache has: all, or those of an earlier download.
uint64_t hub_blob_bytes_there(const struct hub_blob *blob);
// Takes the lock and opens the file to be continued. DONE: the cache has the file, and the snapshot
// its link. BUSY: another program downloads it. HASHING: a part of an earlier download's bytes was
// hashed, and the next call goes on. FAILED: the other program has made no progress for long, or a
// file cannot be made.
enum hub_blob_state hub_blob_open(struct hub_blob *blob, struct err *err);
MUST_USE enum status hub_blob_restart(struct hub_blob *blob, struct err *err); // from byte 0
MUST_USE enum status hub_blob_write(struct hub_blob *blob, const char *bytes, size_t len,
                                    struct err *err);
// All bytes are there: checks the hash and brings the file into its place. OPEN: the hash was wrong
// for the first time, and the file is empty again.
enum hub_blob_state hub_blob_finish(struct hub_blob *blob, struct err *err);

#endif
