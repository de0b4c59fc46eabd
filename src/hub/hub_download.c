/* The steps of a download: the list of files, the index of the shards, the headers of each file
 * (HEAD), its bytes, and at last the ref, when all that was asked for is there. */
#include "hub/hub_download.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/hub_blob.h"
#include "hub/hub_http.h"
#include "hub/hub_list.h"

enum { LIST_BYTES_MAX = 32 << 20, HEADS_AT_ONCE = 8, FILES_AT_ONCE = 4 };

struct download {
    const struct hub_settings *settings;
    const struct hub_wish *wish;
    const struct hub_watch *watch;
    struct hub_http *http;
    struct hub_repo repo;
    struct hub_files files;
    struct hub_job *jobs; // [num_files]
    struct hub_blob *blobs; // [num_files], their owners
    size_t num_files; // of the fetch that is under way
    size_t num_there; // wanted files that the cache had
    bool is_silent; // what is fetched is too small to speak of
};

bool hub_download_is_built(void) {
    return true;
}

// ---- the list ----

struct list {
    struct buf text;
};

static enum hub_job_state list_begin(struct hub_job *job, struct err *err) {
    (void)err;
    buf_clear(&((struct list *)job->owner)->text);
    return HUB_JOB_GO;
}

static enum status list_take(struct hub_job *job, const char *bytes, size_t len, struct err *err) {
    struct list *list = job->owner;
    if (len > LIST_BYTES_MAX - list->text.len) {
        return err_set(err, ERR_FORMAT, "the hub's list of files has more than %d MiB",
                       LIST_BYTES_MAX >> 20);
    }
    return buf_append(&list->text, bytes, len, err);
}

static enum status get_list(struct download *d, struct err *err) {
    static const struct hub_job_kind kind = {.begin = list_begin, .take = list_take};
    struct list list = {0};
    struct hub_job job = {.kind = &kind, .owner = &list};
    const char *revision = d->wish->revision ? d->wish->revision : "main";
    snprintf(job.url, sizeof job.url, "%s/api/models/%s/revision/", d->settings->endpoint,
             d->wish->name->id);
    enum status status = hub_url_append(job.url, revision, false, err);
    if (!status) status = hub_http_run(d->http, &job, 1, 1, NULL, NULL, err);
    if (!status) {
        const char *text = list.text.data ? list.text.data : "";
        status = hub_list_read(&d->files, d->repo.commit, text, list.text.len, err);
    }
    buf_fini(&list.text);
    return status;
}

// ---- headers ----

static enum hub_job_state head_end(struct hub_job *job, struct err *err) {
    struct hub_blob *blob = job->owner;
    const struct hub_reply *reply = &job->reply;
    if (*reply->commit && strcmp(reply->commit, blob->repo->commit) != 0) {
        err_set(err, ERR_FORMAT, "the hub gives %s of another commit than was asked for",
                blob->name);
        return HUB_JOB_FAILED;
    }
    if (!*reply->etag || reply->size == HUB_SIZE_UNKNOWN) {
        err_set(err, ERR_FORMAT, "the hub does not give the %s of %s",
                *reply->etag ? "size" : "hash", blob->name);
        return HUB_JOB_FAILED;
    }
    memcpy(blob->etag, reply->etag, sizeof blob->etag);
    blob->size = reply->size;
    return HUB_JOB_DONE;
}

static enum status get_headers(struct download *d, struct err *err) {
    static const struct hub_job_kind kind = {.is_head = true, .end = head_end};
    enum status status = OK;
    for (size_t i = 0; i < d->num_files && !status; i++) {
        struct hub_job *job = &d->jobs[i];
        *job = (struct hub_job){.kind = &kind, .owner = &d->blobs[i], .file = d->blobs[i].name};
        snprintf(job->url, sizeof job->url, "%s/%s/resolve/%s/", d->settings->endpoint,
                 d->wish->name->id, d->repo.commit);
        status = hub_url_append(job->url, job->file, true, err);
    }
    if (status) return status;
    return hub_http_run(d->http, d->jobs, d->num_files, HEADS_AT_ONCE, NULL, NULL, err);
}

// ---- bytes ----

static enum hub_job_state file_state(struct hub_job *job, enum hub_blob_state state) {
    struct hub_blob *blob = job->owner;
    job->offset = blob->num_bytes;
    switch (state) {
    case HUB_BLOB_OPEN:
        return HUB_JOB_GO;
    case HUB_BLOB_DONE:
        return HUB_JOB_DONE;
    case HUB_BLOB_BUSY:
        return HUB_JOB_AGAIN;
    case HUB_BLOB_HASHING:
        return HUB_JOB_WORKING;
    case HUB_BLOB_FAILED:
        break;
    }
    return HUB_JOB_FAILED;
}

static enum hub_job_state file_begin(struct hub_job *job, struct err *err) {
    struct hub_blob *blob = job->owner;
    enum hub_blob_state state = hub_blob_open(blob, err);
    // An earlier download ended just before the file came into its place.
    bool is_whole = state == HUB_BLOB_OPEN && blob->num_bytes == blob->size;
    if (is_whole) state = hub_blob_finish(blob, err);
    return file_state(job, state);
}

static enum status file_restart(struct hub_job *job, struct err *err) {
    job->offset = 0;
    return hub_blob_restart(job->owner, err);
}

static enum status file_take(struct hub_job *job, const char *bytes, size_t len, struct err *err) {
    return hub_blob_write(job->owner, bytes, len, err);
}

static enum hub_job_state file_end(struct hub_job *job, struct err *err) {
    struct hub_blob *blob = job->owner;
    if (blob->num_bytes < blob->size) {
        err_set(err, ERR_FORMAT, "%s ends after %llu of the %llu bytes that the hub gives it",
                blob->name, (unsigned long long)blob->num_bytes, (unsigned long long)blob->size);
        return HUB_JOB_FAILED;
    }
    enum hub_job_state state = file_state(job, hub_blob_finish(blob, err));
    return state == HUB_JOB_GO ? HUB_JOB_AGAIN : state; // its hash was wrong
}

static void tell(void *user_data) {
    const struct download *d = user_data;
    if (!d->watch->on_progress || d->is_silent) return;
    struct hub_progress progress = {.num_files = (uint32_t)d->num_there,
                                    .total_files = (uint32_t)(d->num_there + d->num_files)};
    for (size_t i = 0; i < d->num_files; i++) {
        progress.num_bytes += d->blobs[i].num_bytes;
        progress.total_bytes += d->blobs[i].size;
        progress.num_files += d->jobs[i].is_done;
    }
    d->watch->on_progress(&progress, d->watch->user_data);
}

static enum status get_bytes(struct download *d, struct err *err) {
    static const struct hub_job_kind kind = {
        .begin = file_begin, .restart = file_restart, .take = file_take, .end = file_end};
    uint64_t missing = 0;
    for (size_t i = 0; i < d->num_files; i++) {
        struct hub_blob *blob = &d->blobs[i];
        struct hub_job *job = &d->jobs[i];
        job->kind = &kind;
        job->is_done = false;
        job->num_failures = job->num_redirects = 0;
        job->not_before = 0;
        job->position = job->best_position = 0;
        // Another program may be at it; what is there now is counted until the file is opened.
        blob->num_bytes = hub_blob_bytes_there(blob);
        missing += blob->size - blob->num_bytes;
    }
    enum status status = hub_repo_check_space(&d->repo, missing, err);
    if (status) return status;
    tell(d);
    status = hub_http_run(d->http, d->jobs, d->num_files, FILES_AT_ONCE, tell, d, err);
    if (!status) tell(d);
    return status;
}

static void end_fetch(struct download *d) {
    for (size_t i = 0; i < d->num_files; i++) hub_blob_close(&d->blobs[i]);
    free(d->blobs);
    free(d->jobs);
    d->blobs = NULL;
    d->jobs = NULL;
    d->num_files = 0;
}

// Brings the wanted files, or of them the one that is `only`.
static enum status fetch(struct download *d, const char *only, struct err *err) {
    size_t count = d->files.count ? d->files.count : 1;
    d->blobs = calloc(count, sizeof *d->blobs);
    d->num_files = d->num_there = 0;
    d->is_silent = only != NULL;
    if (!d->blobs) return err_nomem(err, "download");
    for (size_t i = 0; i < d->files.count; i++) {
        const struct hub_file *file = &d->files.items[i];
        if (!file->is_wanted || (only && strcmp(file->name, only) != 0)) continue;
        if (hub_repo_has(&d->repo, file->name)) {
            d->num_there++;
        } else {
            hub_blob_init(&d->blobs[d->num_files++], &d->repo, file->name);
        }
    }
    enum status status = OK;
    if (d->num_files) {
        d->jobs = calloc(d->num_files, sizeof *d->jobs);
        if (!d->jobs) {
            end_fetch(d);
            return err_nomem(err, "download");
        }
        status = get_headers(d, err);
        if (!status) status = get_bytes(d, err);
    }
    end_fetch(d);
    return status;
}

static enum status want_shards(struct download *d, struct err *err) {
    char path[FILE_PATH_MAX];
    struct buf text = {0};
    enum status status = fetch(d, HUB_INDEX_NAME, err);
    int len = snprintf(path, sizeof path, "%s/snapshots/%s/" HUB_INDEX_NAME, d->repo.folder,
                       d->repo.commit);
    if (!status && (len < 0 || (size_t)len >= sizeof path)) {
        status = err_set(err, ERR_INVALID, "path too long: %.100s", d->repo.folder);
    }
    if (!status) status = file_read(&text, path, err);
    if (!status) {
        status = hub_files_want_shards(&d->files, text.data, text.len, d->wish->name->id, err);
    }
    buf_fini(&text);
    return status;
}

enum status hub_download(struct hub_settings *settings, const struct hub_wish *wish,
                         const struct hub_watch *watch, struct err *err) {
    static const struct hub_watch nobody;
    struct download *d = calloc(1, sizeof *d);
    if (!d) return err_nomem(err, "download");
    struct hub_choice choice = {0};
    d->settings = settings;
    d->wish = wish;
    d->watch = watch ? watch : &nobody;
    enum status status = hub_settings_read_token(settings, err);
    if (!status) status = hub_http_create(&d->http, settings, wish, d->watch, err);
    if (!status) d->repo.library = hub_http_library(d->http);
    if (!status) status = get_list(d, err);
    if (!status) {
        status = hub_files_choose(&d->files, wish->quant, wish->want, &choice, wish->name->id, err);
    }
    // Nothing is made for a model that does not exist.
    if (!status) status = hub_repo_make(&d->repo, settings, wish->name, err);
    if (!status && !choice.is_gguf) status = hub_repo_begin(&d->repo, &d->files, err);
    if (!status && choice.has_shards) status = want_shards(d, err);
    if (!status) status = fetch(d, NULL, err);
    if (!status && !choice.is_gguf) hub_repo_end(&d->repo);
    if (!status) {
        status = hub_repo_write_ref(&d->repo, wish->revision ? wish->revision : "main", err);
    }
    hub_files_fini(&d->files);
    hub_http_destroy(d->http);
    free(d);
    return status;
}
