/* Runs requests to the hub, several at a time, by libcurl.
 *
 * Redirects are followed here and not by libcurl: the token goes to the hub's own host only, and a
 * HEAD stops at a redirect to another host, because the hub's answer has the headers that count.
 * What may pass (a lost connection, HTTP 429 and 5xx) is tried again, a few times in a row. A try
 * that got further than all before counts as a new start. Every wait has a deadline: to connect,
 * and without a byte. */
#ifndef HUB_HUB_HTTP_H
#define HUB_HUB_HTTP_H

#include "base/text/buf.h"
#include "hub/hub_download.h"
#include "hub/hub_reply.h"

struct hub_http;
struct hub_job;

enum hub_job_state { HUB_JOB_GO, HUB_JOB_DONE, HUB_JOB_AGAIN, HUB_JOB_WORKING, HUB_JOB_FAILED };

// What a job does; functions may be NULL where they have nothing to do.
struct hub_job_kind {
    bool is_head;
    // Before a request, also one that is tried again. GO: make it; AGAIN: not yet, ask again after
    // a moment; WORKING: not yet, ask again at once; DONE: none is needed.
    enum hub_job_state (*begin)(struct hub_job *job, struct err *err);
    // The answer begins with byte 0, although job->offset bytes are there.
    enum status (*restart)(struct hub_job *job, struct err *err);
    enum status (*take)(struct hub_job *job, const char *bytes, size_t len, struct err *err);
    // After a whole answer. DONE, or AGAIN: once more, from job->offset.
    enum hub_job_state (*end)(struct hub_job *job, struct err *err);
};

struct hub_job {
    const struct hub_job_kind *kind;
    char url[HUB_URL_MAX];
    const char *file; // for messages; NULL: the list of files
    uint64_t offset; // bytes that are there: the request asks for those behind them
    struct hub_reply reply; // to the last request
    void *owner;
    // Of hub_http.c.
    struct hub_http *http;
    void *easy; // a request is under way
    void *headers;
    char *at; // the URL that is asked, after redirects
    bool is_done, has_bytes;
    uint64_t position, best_position; // of the bytes that came: how far this try is, and the best
    unsigned num_failures, num_redirects;
    double not_before; // clock_seconds
    struct err err; // of take or restart
};

MUST_USE enum status hub_http_create(struct hub_http **out, const struct hub_settings *settings,
                                     const struct hub_wish *wish, const struct hub_watch *watch,
                                     struct err *err);
void hub_http_destroy(struct hub_http *http); // NULL is fine
const struct hub_library *hub_http_library(const struct hub_http *http);
// Runs the jobs to their ends, num_parallel at a time. The first failure ends all. `tick` is called
// now and then (NULL: nothing).
MUST_USE enum status hub_http_run(struct hub_http *http, struct hub_job *jobs, size_t num_jobs,
                                  size_t num_parallel, void (*tick)(void *user_data),
                                  void *user_data, struct err *err);

// Appends `text` to a URL, with all but a few characters as %41; `keep_slash`: a path.
MUST_USE enum status hub_url_append(char url[HUB_URL_MAX], const char *text, bool keep_slash,
                                    struct err *err);

#endif
