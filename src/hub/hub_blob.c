#include "hub/hub_blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/text/c_locale.h"
#include "hub/hub_library.h"

static const double busy_factor = 6; // times the timeout: how long a lock's owner may do nothing
static const uint64_t spare_bytes = 1 << 20; // of a disk, beside the files
// Hashed at a time: a fraction of a second, after which interrupts and other files have their turn.
static const uint64_t slice_bytes = 8 << 20;

static const char incomplete_end[] = ".incomplete"; // as huggingface_hub names it
static const char kept_end[] = ".nolock.incomplete";

// ---- folders ----

static enum status io_error(const char *what, const char *path, struct err *err) {
    return err_set(err, ERR_IO, "cannot %s %s: %s", what, path, c_locale_strerror(errno));
}

static enum status make_folder(const char *root, char out[FILE_PATH_MAX], const char *folder,
                               const char *name, struct err *err) {
    char target[PATH_MAX];
    enum status status = file_join(out, FILE_PATH_MAX, folder, name, err);
    if (status) return status;
    if (mkdir(out, 0777) && errno != EEXIST) return io_error("make", out, err);
    if (!realpath(out, target)) return io_error("open", out, err);
    size_t len = strlen(root);
    if (strncmp(target, root, len) == 0 && target[len] == '/') return OK;
    return err_set(err, ERR_INVALID, "%s leads out of the cache, to %s", out, target);
}

enum status hub_repo_make(struct hub_repo *repo, const struct hub_settings *settings,
                          const struct hub_name *name, struct err *err) {
    char path[FILE_PATH_MAX], locks[FILE_PATH_MAX], target[PATH_MAX];
    enum status status = file_join(path, sizeof path, settings->cache, "x", err);
    if (!status) status = file_make_folders(path, err);
    if (status) return status;
    if (!realpath(settings->cache, target)) return io_error("open", settings->cache, err);
    snprintf(repo->root, sizeof repo->root, "%s", target);
    repo->timeout_seconds = settings->timeout_seconds;
    status = make_folder(repo->root, repo->folder, repo->root, name->folder, err);
    if (!status) status = make_folder(repo->root, path, repo->folder, "blobs", err);
    if (!status) status = make_folder(repo->root, path, repo->folder, "refs", err);
    if (!status) status = make_folder(repo->root, path, repo->folder, "snapshots", err);
    if (!status) status = make_folder(repo->root, locks, repo->root, ".locks", err);
    if (!status) status = make_folder(repo->root, repo->locks, locks, name->folder, err);
    return status;
}

// Makes the folders of "a/b/c" below `folder`, and puts the whole path into `out`.
static enum status make_parents(const char *root, char out[FILE_PATH_MAX], const char *folder,
                                const char *name, struct err *err) {
    char at[FILE_PATH_MAX], next[FILE_PATH_MAX], part[256];
    enum status status = OK;
    snprintf(at, sizeof at, "%s", folder);
    const char *slash;
    while (!status && (slash = strchr(name, '/'))) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        status = make_folder(root, next, at, part, err);
        memcpy(at, next, sizeof at);
        name = slash + 1;
    }
    return status ? status : file_join(out, FILE_PATH_MAX, at, name, err);
}

// Another process, on another host too, has no such number.
static unsigned long long unique_number(void) {
    unsigned long long number = 0;
    if (getrandom(&number, sizeof number, 0) < 0) number = (unsigned long long)getpid();
    return number;
}

// Replaces the file in one step, so that no reader sees a part of it.
static enum status write_file(const char *path, const char *text, size_t text_len,
                              struct err *err) {
    char whole[FILE_PATH_MAX];
    int len = snprintf(whole, sizeof whole, "%s.%llx.tmp", path, unique_number());
    if (len < 0 || (size_t)len >= sizeof whole) return err_set(err, ERR_INVALID, "path too long");
    int fd = open(whole, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return io_error("make", whole, err);
    bool is_written = write(fd, text, text_len) == (ssize_t)text_len;
    is_written = close(fd) == 0 && is_written && rename(whole, path) == 0;
    if (is_written) return OK;
    enum status status = io_error("write", path, err);
    unlink(whole);
    return status;
}

enum status hub_repo_write_ref(const struct hub_repo *repo, const char *revision, struct err *err) {
    char refs[FILE_PATH_MAX], path[FILE_PATH_MAX], commit[HUB_COMMIT_SIZE];
    if (hub_is_commit(revision)) return OK;
    if (hub_cache_read_ref(commit, repo->folder, revision) && strcmp(commit, repo->commit) == 0) {
        return OK;
    }
    enum status status = file_join(refs, sizeof refs, repo->folder, "refs", err);
    if (!status) status = make_parents(repo->root, path, refs, revision, err);
    return status ? status : write_file(path, repo->commit, strlen(repo->commit), err);
}

static enum status put_snapshot_path(char out[FILE_PATH_MAX], const struct hub_repo *repo,
                                     const char *name, struct err *err) {
    int len = snprintf(out, FILE_PATH_MAX, "%s/snapshots/%s/%s", repo->folder, repo->commit, name);
    if (len > 0 && len < FILE_PATH_MAX) return OK;
    return err_set(err, ERR_INVALID, "path too long: %.100s", name);
}

bool hub_repo_has(const struct hub_repo *repo, const char *name) {
    char path[FILE_PATH_MAX], target[PATH_MAX];
    size_t len = strlen(repo->root);
    return !put_snapshot_path(path, repo, name, NULL) && realpath(path, target) &&
           strncmp(target, repo->root, len) == 0 && target[len] == '/' && file_exists(target);
}

enum status hub_repo_begin(const struct hub_repo *repo, const struct hub_files *files,
                           struct err *err) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct buf text = {0};
    // A file that another program left there counts too.
    for (size_t i = 0; i < files->count; i++) {
        if (files->items[i].is_wanted && hub_repo_has(repo, files->items[i].name)) return OK;
    }
    enum status status = OK;
    for (size_t i = 0; i < files->count && !status; i++) {
        const struct hub_file *file = &files->items[i];
        if (!file->is_wanted || !hub_file_is_text(file->name)) continue;
        status = buf_appendf(&text, err, "%s\n", file->name);
    }
    if (status || !text.len) goto done;
    status = make_folder(repo->root, folder, repo->folder, HUB_UNFINISHED_FOLDER, err);
    if (!status) status = file_join(path, sizeof path, folder, repo->commit, err);
    if (!status) status = write_file(path, text.data, text.len, err);
done:
    buf_fini(&text);
    return status;
}

void hub_repo_end(const struct hub_repo *repo) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    if (file_join(folder, sizeof folder, repo->folder, HUB_UNFINISHED_FOLDER, NULL) ||
        file_join(path, sizeof path, folder, repo->commit, NULL)) {
        return;
    }
    unlink(path);
    rmdir(folder); // unless another download's names are there
}

enum status hub_repo_check_space(const struct hub_repo *repo, uint64_t bytes, struct err *err) {
    struct statvfs info;
    if (statvfs(repo->folder, &info)) return io_error("stat", repo->folder, err);
    uint64_t num_free = (uint64_t)info.f_bavail * info.f_frsize;
    if (bytes + spare_bytes <= num_free) return OK;
    return err_set(err, ERR_IO,
                   "the disk of %s is too full: %llu MB are needed and %llu MB are free; "
                   "HF_HOME may name another disk",
                   repo->root, (unsigned long long)(bytes / 1000000 + 1),
                   (unsigned long long)(num_free / 1000000));
}

// ---- the file ----

void hub_blob_init(struct hub_blob *blob, const struct hub_repo *repo, const char *name) {
    *blob = (struct hub_blob){.repo = repo, .name = name, .fd = -1, .lock = -1};
    memcpy(blob->end, incomplete_end, sizeof incomplete_end);
}

static enum status put_blob_path(char out[FILE_PATH_MAX], const struct hub_blob *blob,
                                 const char *end, struct err *err) {
    int len = snprintf(out, FILE_PATH_MAX, "%s/blobs/%s%s", blob->repo->folder, blob->etag, end);
    if (len > 0 && len < FILE_PATH_MAX) return OK;
    return err_set(err, ERR_INVALID, "path too long: %.100s", blob->repo->folder);
}

void hub_blob_close(struct hub_blob *blob) {
    char own[FILE_PATH_MAX], kept[FILE_PATH_MAX];
    // Without a lock the file was this download's own: the next one may go on with it.
    if (blob->fd >= 0 && strcmp(blob->end, incomplete_end) != 0 &&
        !put_blob_path(own, blob, blob->end, NULL) && !put_blob_path(kept, blob, kept_end, NULL)) {
        rename(own, kept); // it is not there if the file has come into its place
    }
    if (blob->digest) blob->repo->library->EVP_MD_CTX_free(blob->digest);
    if (blob->fd >= 0) close(blob->fd);
    if (blob->lock >= 0) close(blob->lock); // its end ends the lock
    blob->digest = NULL;
    blob->fd = blob->lock = -1;
}

static uint64_t size_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

uint64_t hub_blob_bytes_there(const struct hub_blob *blob) {
    char path[FILE_PATH_MAX], incomplete[FILE_PATH_MAX], kept[FILE_PATH_MAX];
    if (put_blob_path(path, blob, "", NULL) ||
        put_blob_path(incomplete, blob, incomplete_end, NULL) ||
        put_blob_path(kept, blob, kept_end, NULL)) {
        return 0;
    }
    if (file_exists(path)) return blob->size;
    uint64_t size = size_of(incomplete), kept_size = size_of(kept);
    if (kept_size > size) size = kept_size;
    return size <= blob->size ? size : 0;
}

// The bytes that downloads of this file have written, ours or another program's.
static uint64_t bytes_under_way(const struct hub_blob *blob) {
    char blobs[FILE_PATH_MAX], path[FILE_PATH_MAX];
    uint64_t sum = 0;
    size_t len = strlen(blob->etag);
    if (file_join(blobs, sizeof blobs, blob->repo->folder, "blobs", NULL)) return 0;
    DIR *dir = opendir(blobs);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, blob->etag, len) != 0) continue;
        if (!file_join(path, sizeof path, blobs, entry->d_name, NULL)) sum += size_of(path);
    }
    if (dir) closedir(dir);
    return sum;
}

// The lock that huggingface_hub takes too (flock).
static enum hub_blob_state take_lock(struct hub_blob *blob, struct err *err) {
    char path[FILE_PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%s.lock", blob->repo->locks, blob->etag);
    if (len < 0 || (size_t)len >= sizeof path) {
        err_set(err, ERR_INVALID, "path too long: %.100s", blob->repo->locks);
        return HUB_BLOB_FAILED;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        io_error("make", path, err);
        return HUB_BLOB_FAILED;
    }
    struct stat own, named;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        // Another program may have removed the file since it was opened.
        bool is_same = fstat(fd, &own) == 0 && stat(path, &named) == 0 &&
                       own.st_ino == named.st_ino && own.st_dev == named.st_dev;
        if (is_same) {
            blob->lock = fd;
            blob->busy_since = 0;
            return HUB_BLOB_OPEN;
        }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
        // A file system without locks: two downloads at once fetch the file twice.
        blob->lock = fd;
        snprintf(blob->end, sizeof blob->end, ".%016llx.incomplete", unique_number());
        return HUB_BLOB_OPEN;
    }
    // The owner's progress: bytes that it writes, or the time that it sets while it hashes.
    struct timespec touched = {0};
    if (fstat(fd, &own) == 0) touched = own.st_mtim;
    close(fd);
    double now = clock_seconds();
    uint64_t num_bytes = bytes_under_way(blob);
    if (blob->busy_since == 0 || num_bytes != blob->busy_bytes ||
        touched.tv_sec != blob->busy_touched.tv_sec ||
        touched.tv_nsec != blob->busy_touched.tv_nsec) {
        blob->busy_since = now;
        blob->busy_bytes = num_bytes;
        blob->busy_touched = touched;
    }
    if (now - blob->busy_since < busy_factor * blob->repo->timeout_seconds) return HUB_BLOB_BUSY;
    err_set(err, ERR_IO,
            "another program holds the lock of %s (%s) and has made no progress for %.0f seconds",
            blob->name, path, now - blob->busy_since);
    return HUB_BLOB_FAILED;
}

// ---- its hash ----

static enum status begin_digest(struct hub_blob *blob, struct err *err) {
    const struct hub_library *library = blob->repo->library;
    blob->num_hashed = 0;
    bool is_git = strlen(blob->etag) == 40;
    if (!blob->digest) blob->digest = library->EVP_MD_CTX_new();
    if (!blob->digest) return err_nomem(err, "download");
    int works = library->EVP_DigestInit_ex(
        blob->digest, is_git ? library->EVP_sha1() : library->EVP_sha256(), NULL);
    if (works && is_git) { // what git hashes of a file
        char head[40];
        int len = snprintf(head, sizeof head, "blob %llu", (unsigned long long)blob->size);
        works = library->EVP_DigestUpdate(blob->digest, head, (size_t)len + 1);
    }
    return works ? OK : err_set(err, ERR_UNSUPPORTED, "libcrypto has no SHA-256 or SHA-1");
}

// Hashes the next of the bytes that an earlier download left, and tells those who wait for the lock
// that it goes on.
static enum status digest_slice(struct hub_blob *blob, struct err *err) {
    enum { CHUNK = 1 << 20 };
    char *bytes = malloc(CHUNK);
    if (!bytes) return err_nomem(err, "download");
    enum status status = OK;
    uint64_t left = blob->num_bytes - blob->num_hashed;
    uint64_t end = blob->num_hashed + (left < slice_bytes ? left : slice_bytes);
    while (blob->num_hashed < end && !status) {
        left = end - blob->num_hashed;
        ssize_t n =
            pread(blob->fd, bytes, left < CHUNK ? (size_t)left : CHUNK, (off_t)blob->num_hashed);
        if (n <= 0) {
            status = io_error("read", blob->name, err);
        } else {
            blob->repo->library->EVP_DigestUpdate(blob->digest, bytes, (size_t)n);
            blob->num_hashed += (uint64_t)n;
        }
    }
    free(bytes);
    futimens(blob->lock, NULL);
    return status;
}

static enum hub_blob_state go_on_hashing(struct hub_blob *blob, struct err *err) {
    if (blob->num_hashed < blob->num_bytes && digest_slice(blob, err)) {
        hub_blob_close(blob);
        return HUB_BLOB_FAILED;
    }
    return blob->num_hashed < blob->num_bytes ? HUB_BLOB_HASHING : HUB_BLOB_OPEN;
}

static bool is_hash_right(struct hub_blob *blob) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    blob->repo->library->EVP_DigestFinal_ex(blob->digest, digest, &len);
    for (unsigned i = 0; i < len; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return strcmp(text, blob->etag) == 0;
}

// ---- its place ----

// "../../blobs/<etag>", from the folder of a file in the snapshot.
static void put_link_target(char out[FILE_PATH_MAX], const struct hub_blob *blob) {
    size_t len = 0;
    for (const char *c = blob->name; *c; c++) {
        if (*c == '/') len += (size_t)snprintf(out + len, FILE_PATH_MAX - len, "../");
    }
    snprintf(out + len, FILE_PATH_MAX - len, "../../blobs/%s", blob->etag);
}

static enum status link_blob(struct hub_blob *blob, struct err *err) {
    const struct hub_repo *repo = blob->repo;
    char snapshots[FILE_PATH_MAX], folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    char target[FILE_PATH_MAX], fresh[FILE_PATH_MAX], own[FILE_PATH_MAX];
    if (hub_repo_has(repo, blob->name)) return OK;
    enum status status = file_join(snapshots, sizeof snapshots, repo->folder, "snapshots", err);
    if (!status) status = make_folder(repo->root, folder, snapshots, repo->commit, err);
    if (!status) status = make_parents(repo->root, path, folder, blob->name, err);
    if (!status) status = put_blob_path(own, blob, "", err);
    if (status) return status;
    put_link_target(target, blob);
    int len = snprintf(fresh, sizeof fresh, "%s.%llx.tmp", path, unique_number());
    if (len < 0 || (size_t)len >= sizeof fresh) return err_set(err, ERR_INVALID, "path too long");
    if (symlink(target, fresh) == 0) {
        if (rename(fresh, path) == 0) return OK;
        status = io_error("make", path, err);
        unlink(fresh);
        return status;
    }
    // A file system without links: the file itself is in the snapshot, as huggingface_hub does it.
    if (errno != EPERM && errno != EOPNOTSUPP) return io_error("make", path, err);
    return rename(own, path) == 0 ? OK : io_error("make", path, err);
}

enum hub_blob_state hub_blob_open(struct hub_blob *blob, struct err *err) {
    char path[FILE_PATH_MAX], incomplete[FILE_PATH_MAX], kept[FILE_PATH_MAX];
    if (blob->fd >= 0) return go_on_hashing(blob, err);
    enum hub_blob_state state = take_lock(blob, err);
    if (state != HUB_BLOB_OPEN) return state;
    enum status status = put_blob_path(path, blob, "", err);
    if (!status) status = put_blob_path(incomplete, blob, blob->end, err);
    if (!status) status = put_blob_path(kept, blob, kept_end, err);
    if (!status && file_exists(path)) { // another program was faster
        status = link_blob(blob, err);
        blob->num_bytes = blob->size;
        hub_blob_close(blob);
        return status ? HUB_BLOB_FAILED : HUB_BLOB_DONE;
    }
    if (!status) {
        // Of two downloads without a lock one gets the file that an earlier one left.
        if (strcmp(blob->end, incomplete_end) != 0) rename(kept, incomplete);
        blob->fd = open(incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (blob->fd < 0) status = io_error("make", incomplete, err);
    }
    if (!status) {
        blob->num_bytes = size_of(incomplete);
        if (blob->num_bytes > blob->size) status = hub_blob_restart(blob, err);
    }
    if (!status) status = begin_digest(blob, err);
    if (!status) return go_on_hashing(blob, err);
    hub_blob_close(blob);
    return HUB_BLOB_FAILED;
}

enum status hub_blob_restart(struct hub_blob *blob, struct err *err) {
    blob->num_bytes = 0;
    if (ftruncate(blob->fd, 0)) return io_error("empty", blob->name, err);
    return begin_digest(blob, err);
}

enum status hub_blob_write(struct hub_blob *blob, const char *bytes, size_t len, struct err *err) {
    if (len > blob->size - blob->num_bytes) {
        return err_set(err, ERR_FORMAT, "%s is longer than the %llu bytes that the hub gives it",
                       blob->name, (unsigned long long)blob->size);
    }
    blob->repo->library->EVP_DigestUpdate(blob->digest, bytes, len);
    blob->num_hashed += len;
    while (len) {
        ssize_t n = pwrite(blob->fd, bytes, len, (off_t)blob->num_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
            return err_set(err, ERR_IO,
                           "the disk of %s is full: %llu MB of %s are missing; what was downloaded "
                           "is kept",
                           blob->repo->root,
                           (unsigned long long)((blob->size - blob->num_bytes) / 1000000 + 1),
                           blob->name);
        }
        if (n <= 0) return io_error("write", blob->name, err);
        bytes += n;
        len -= (size_t)n;
        blob->num_bytes += (uint64_t)n;
    }
    return OK;
}

enum hub_blob_state hub_blob_finish(struct hub_blob *blob, struct err *err) {
    char path[FILE_PATH_MAX], incomplete[FILE_PATH_MAX];
    enum status status = put_blob_path(path, blob, "", err);
    if (!status) status = put_blob_path(incomplete, blob, blob->end, err);
    if (!status && !is_hash_right(blob)) {
        status = hub_blob_restart(blob, err);
        if (!status && !blob->was_wrong) {
            blob->was_wrong = true;
            return HUB_BLOB_OPEN;
        }
        unlink(incomplete);
        if (!status) {
            err_set(err, ERR_FORMAT,
                    "%s arrived twice with another hash than the hub gives it (%.12s...); it is "
                    "deleted",
                    blob->name, blob->etag);
        }
        hub_blob_close(blob);
        return HUB_BLOB_FAILED;
    }
    if (!status && rename(incomplete, path)) status = io_error("make", path, err);
    if (!status) status = link_blob(blob, err);
    hub_blob_close(blob);
    return status ? HUB_BLOB_FAILED : HUB_BLOB_DONE;
}
