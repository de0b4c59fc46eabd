#include "hub/hub_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/text/c_locale.h"
#include "hub/hub_library.h"

enum { FAILURES_MAX = 5, REDIRECTS_MAX = 6, POLL_MS = 100 };

static const double retry_seconds = 0.5; // doubles with each failure in a row
static const double retry_after_max = 300;
static const double busy_seconds = 0.2; // before a job that was not ready is asked again

struct hub_http {
    struct hub_library library;
    CURLM *multi;
    const struct hub_settings *settings;
    const struct hub_wish *wish;
    const struct hub_watch *watch;
    struct err *err; // of the run; the first failure
    enum status status;
    bool is_working; // a job has more to do before its request
};

enum status hub_http_create(struct hub_http **out, const struct hub_settings *settings,
                            const struct hub_wish *wish, const struct hub_watch *watch,
                            struct err *err) {
    *out = NULL;
    struct hub_http *http = calloc(1, sizeof *http);
    if (!http) return err_nomem(err, "download");
    http->settings = settings;
    http->wish = wish;
    http->watch = watch;
    enum status status = hub_library_open(&http->library, err);
    if (!status && !(http->multi = http->library.curl_multi_init())) {
        status = err_nomem(err, "download");
    }
    if (status) {
        hub_http_destroy(http);
        return status;
    }
    *out = http;
    return OK;
}

void hub_http_destroy(struct hub_http *http) {
    if (!http) return;
    if (http->multi) http->library.curl_multi_cleanup(http->multi);
    free(http);
}

const struct hub_library *hub_http_library(const struct hub_http *http) {
    return &http->library;
}

enum status hub_url_append(char url[HUB_URL_MAX], const char *text, bool keep_slash,
                           struct err *err) {
    static const char digits[] = "0123456789ABCDEF";
    size_t len = strlen(url);
    for (; *text; text++) {
        bool is_plain =
            c_locale_is_alnum(*text) || strchr("-._~", *text) || (keep_slash && *text == '/');
        if (len + 4 > HUB_URL_MAX) return err_set(err, ERR_INVALID, "a URL is too long");
        if (is_plain) {
            url[len++] = *text;
        } else {
            unsigned byte = (unsigned char)*text;
            url[len++] = '%';
            url[len++] = digits[byte >> 4];
            url[len++] = digits[byte & 15];
        }
        url[len] = '\0';
    }
    return OK;
}

// ---- one request ----

// The length of "https://host:port" of a URL.
static size_t origin_len(const char *url) {
    const char *host = strstr(url, "://");
    return host ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?#") : strlen(url);
}

// Whether the URL is of the hub's own scheme, host and port, which alone may see the token.
static bool is_own_host(const struct hub_http *http, const char *url) {
    size_t len = origin_len(http->settings->endpoint);
    return origin_len(url) == len && strncmp(url, http->settings->endpoint, len) == 0;
}

static bool is_success(long http_status) {
    return http_status == 200 || http_status == 206;
}

// Headers of each answer; a new status line begins them.
static size_t on_header(char *line, size_t one, size_t len, void *user_data) {
    struct hub_job *job = user_data;
    (void)one;
    if (len > 5 && memcmp(line, "HTTP/", 5) == 0) hub_reply_init(&job->reply);
    hub_reply_take_header(&job->reply, line, len);
    return len;
}

static size_t on_body(char *bytes, size_t one, size_t len, void *user_data) {
    struct hub_job *job = user_data;
    const struct hub_library *library = &job->http->library;
    (void)one;
    library->curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &job->reply.http_status);
    if (!is_success(job->reply.http_status) || !job->kind->take) return len; // the text of an error
    enum status status = OK;
    bool goes_on = job->reply.http_status == 206 && job->reply.has_range &&
                   job->reply.range_start == job->offset;
    if (!job->has_bytes && job->offset && !goes_on) {
        if (job->reply.http_status == 206 && !(job->reply.has_range && !job->reply.range_start)) {
            status = err_set(&job->err, ERR_IO, "the hub sends other bytes than were asked for");
        } else if (job->kind->restart) {
            status = job->kind->restart(job, &job->err);
            job->position = 0;
        }
    }
    job->has_bytes = true;
    job->position += len;
    if (!status) status = job->kind->take(job, bytes, len, &job->err);
    return status ? 0 : len;
}

static enum status set_options(struct hub_job *job, struct err *err) {
    struct hub_http *http = job->http;
    const struct hub_library *library = &http->library;
    const struct hub_settings *settings = http->settings;
    const bool is_own = is_own_host(http, job->at);
    char line[HUB_TOKEN_MAX + 32];
    struct curl_slist *headers = library->curl_slist_append(NULL, "Accept-Encoding: identity");
    if (is_own && *settings->token) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", settings->token);
        struct curl_slist *longer = headers ? library->curl_slist_append(headers, line) : NULL;
        if (!longer) library->curl_slist_free_all(headers);
        headers = longer;
    }
    if (!headers) return err_nomem(err, "download");
    job->headers = headers;
    // A hub that is reached by TLS may redirect to TLS only.
    bool is_tls = strncmp(settings->endpoint, "https:", 6) == 0;
    long connect_ms = (long)(settings->timeout_seconds * 1000) + 1;
    long stall_seconds = (long)settings->timeout_seconds;
    int wrong = 0;
#define SET(option, value)                                                                         \
    wrong |= (int)library->curl_easy_setopt(job->easy, CURLOPT_##option, value)
    SET(URL, job->at);
    SET(PRIVATE, job);
    SET(HTTPHEADER, headers);
    SET(USERAGENT, "nanovllm");
    SET(PROTOCOLS_STR, is_tls ? "https" : "https,http");
    SET(FOLLOWLOCATION, 0L);
    SET(NOSIGNAL, 1L);
    SET(CONNECTTIMEOUT_MS, connect_ms);
    SET(LOW_SPEED_LIMIT, 1L);
    SET(LOW_SPEED_TIME, stall_seconds > 1 ? stall_seconds : 1L);
    SET(HEADERFUNCTION, on_header);
    SET(HEADERDATA, job);
    SET(WRITEFUNCTION, on_body);
    SET(WRITEDATA, job);
    if (job->kind->is_head) SET(NOBODY, 1L);
    // Not RESUME_FROM, which takes a redirect for a refusal.
    char range[32];
    snprintf(range, sizeof range, "%llu-", (unsigned long long)job->offset);
    if (job->offset) SET(RANGE, range);
    if (*settings->ca_file) SET(CAINFO, settings->ca_file);
#undef SET
    return wrong ? err_set(err, ERR_UNSUPPORTED, "libcurl refuses an option") : OK;
}

static void end_request(struct hub_job *job) {
    const struct hub_library *library = &job->http->library;
    if (job->easy) {
        library->curl_multi_remove_handle(job->http->multi, job->easy);
        library->curl_easy_cleanup(job->easy);
    }
    library->curl_slist_free_all(job->headers);
    job->easy = job->headers = NULL;
}

static enum status begin_request(struct hub_job *job, struct err *err) {
    struct hub_http *http = job->http;
    hub_reply_init(&job->reply);
    job->has_bytes = false;
    job->position = job->offset;
    job->err = (struct err){0};
    job->easy = http->library.curl_easy_init();
    if (!job->easy) return err_nomem(err, "download");
    enum status status = set_options(job, err);
    if (!status && http->library.curl_multi_add_handle(http->multi, job->easy)) {
        status = err_nomem(err, "download");
    }
    if (status) end_request(job);
    return status;
}

// ---- after a request ----

static enum status point_at(struct hub_job *job, const char *url, struct err *err) {
    char *copy = strdup(url);
    if (!copy) return err_nomem(err, "download");
    free(job->at);
    job->at = copy;
    return OK;
}

static void fail(struct hub_http *http, enum status status) {
    if (!http->status) http->status = status;
}

// Begins again from the job's own URL: links to other hosts expire.
static void try_again(struct hub_job *job, double seconds) {
    job->num_redirects = 0;
    job->not_before = clock_seconds() + seconds;
    enum status status = point_at(job, job->url, job->http->err);
    if (status) fail(job->http, status);
}

// Whether one more try may help. Waits longer after each failure in a row.
static bool may_try_again(struct hub_job *job, double seconds) {
    bool is_further = job->position > job->best_position;
    if (is_further) {
        job->best_position = job->position;
        job->num_failures = 0;
    }
    if (++job->num_failures >= FAILURES_MAX || seconds > retry_after_max) return false;
    double wait = is_further ? 0 : retry_seconds * (double)(1u << (job->num_failures - 1));
    try_again(job, seconds > wait ? seconds : wait);
    return true;
}

static void take_end(struct hub_job *job) {
    enum hub_job_state state = job->kind->end ? job->kind->end(job, job->http->err) : HUB_JOB_DONE;
    if (state == HUB_JOB_DONE) job->is_done = true;
    if (state == HUB_JOB_AGAIN) try_again(job, 0);
    if (state == HUB_JOB_FAILED) fail(job->http, job->http->err->status);
}

static bool is_passing(long http_status) {
    return http_status == 408 || http_status == 429 || http_status == 500 || http_status == 502 ||
           http_status == 503 || http_status == 504;
}

static void take_redirect(struct hub_job *job, const char *url) {
    struct hub_http *http = job->http;
    if (job->kind->is_head && !is_own_host(http, url)) {
        take_end(job);
        return;
    }
    if (++job->num_redirects > REDIRECTS_MAX) {
        fail(http, err_set(http->err, ERR_IO, "%s redirects more than %d times",
                           http->settings->endpoint, REDIRECTS_MAX));
        return;
    }
    enum status status = point_at(job, url, http->err);
    if (status) fail(http, status);
}

static void take_answer(struct hub_job *job, const char *redirect) {
    struct hub_http *http = job->http;
    long http_status = job->reply.http_status;
    if (is_success(http_status)) {
        take_end(job);
    } else if (http_status >= 300 && http_status < 400 && redirect) {
        take_redirect(job, redirect);
    } else if (http_status == 416 && job->offset && job->kind->restart && job->num_failures < 2) {
        // There is nothing behind the bytes that are there: they are of something else.
        job->num_failures++;
        enum status status = job->kind->restart(job, http->err);
        if (status) fail(http, status);
        if (!status) try_again(job, 0);
    } else if (!is_own_host(http, job->at)) {
        // A link to another host that has expired: the hub gives a new one.
        if (may_try_again(job, job->reply.retry_after)) return;
        fail(http, err_set(http->err, ERR_IO, "%.*s answers with HTTP %ld for %s of %s",
                           (int)origin_len(job->at), job->at, http_status,
                           job->file ? job->file : "the list", http->wish->name->id));
    } else if (is_passing(http_status)) {
        if (!may_try_again(job, job->reply.retry_after)) {
            fail(http,
                 hub_reply_refuse(&job->reply, http->settings, http->wish, job->file, http->err));
        }
    } else {
        fail(http, hub_reply_refuse(&job->reply, http->settings, http->wish, job->file, http->err));
    }
}

// A request that broke: by us, by TLS, or on the way.
static void take_break(struct hub_job *job, CURLcode code) {
    struct hub_http *http = job->http;
    if (job->err.status) {
        *http->err = job->err;
        fail(http, job->err.status);
        return;
    }
    bool is_final = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
                    code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
                    code == CURLE_OUT_OF_MEMORY;
    if (!is_final && may_try_again(job, 0)) return;
    fail(http, err_set(http->err, ERR_IO, "cannot get %s%s%s from %.*s: %s", http->wish->name->id,
                       job->file ? "/" : "", job->file ? job->file : "", (int)origin_len(job->at),
                       job->at, http->library.curl_easy_strerror(code)));
}

static void take_messages(struct hub_http *http) {
    const struct hub_library *library = &http->library;
    CURLMsg *message;
    int num_left;
    while ((message = library->curl_multi_info_read(http->multi, &num_left))) {
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        char *private = NULL, *redirect = NULL, *copy = NULL;
        library->curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        struct hub_job *job = (struct hub_job *)(void *)private;
        library->curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &job->reply.http_status);
        library->curl_easy_getinfo(job->easy, CURLINFO_REDIRECT_URL, &redirect);
        if (redirect) copy = strdup(redirect);
        end_request(job);
        if (code == CURLE_OK) {
            take_answer(job, copy);
        } else {
            take_break(job, code);
        }
        free(copy);
    }
}

// ---- all requests ----

static void begin_job(struct hub_http *http, struct hub_job *job, double now) {
    enum hub_job_state state = HUB_JOB_GO;
    // A redirect goes on with the request that began.
    if (job->kind->begin && !job->num_redirects) state = job->kind->begin(job, http->err);
    if (state == HUB_JOB_FAILED) fail(http, http->err->status);
    if (state == HUB_JOB_DONE) job->is_done = true;
    if (state == HUB_JOB_AGAIN) job->not_before = now + busy_seconds;
    if (state == HUB_JOB_WORKING) http->is_working = true;
    if (state != HUB_JOB_GO) return;
    enum status status = begin_request(job, http->err);
    if (status) fail(http, status);
}

// Begins the jobs that may run now. Returns how many are left.
static size_t begin_jobs(struct hub_http *http, struct hub_job *jobs, size_t num_jobs,
                         size_t num_parallel) {
    size_t num_left = 0, num_running = 0;
    double now = clock_seconds();
    http->is_working = false;
    for (size_t i = 0; i < num_jobs; i++) num_running += jobs[i].easy != NULL;
    for (size_t i = 0; i < num_jobs && !http->status; i++) {
        struct hub_job *job = &jobs[i];
        bool may_run = !job->is_done && !job->easy && job->not_before <= now;
        if (may_run && num_running < num_parallel) begin_job(http, job, now);
        num_running += may_run && job->easy;
        num_left += !job->is_done;
    }
    return num_left;
}

static void run_once(struct hub_http *http) {
    int num_running;
    CURLMcode code = http->library.curl_multi_perform(http->multi, &num_running);
    if (!code) take_messages(http);
    // With nothing under way this waits the whole time: a job waits for its turn.
    if (!code && !http->status) {
        int wait_ms = http->is_working ? 0 : POLL_MS;
        code = http->library.curl_multi_poll(http->multi, NULL, 0, wait_ms, NULL);
    }
    if (!code) return;
    fail(http, err_set(http->err, ERR_IO, "libcurl: %s", http->library.curl_multi_strerror(code)));
}

enum status hub_http_run(struct hub_http *http, struct hub_job *jobs, size_t num_jobs,
                         size_t num_parallel, void (*tick)(void *user_data), void *user_data,
                         struct err *err) {
    struct err own = {0};
    http->err = err ? err : &own;
    http->status = OK;
    for (size_t i = 0; i < num_jobs; i++) jobs[i].http = http; // end_request needs it
    for (size_t i = 0; i < num_jobs && !http->status; i++) {
        http->status = point_at(&jobs[i], jobs[i].url, http->err);
    }
    while (!http->status && begin_jobs(http, jobs, num_jobs, num_parallel)) {
        if (!http->status) run_once(http);
        if (tick) tick(user_data);
        if (http->status) break;
        http->status = interrupt_check(http->watch->interrupt, NULL);
        if (!http->status) continue;
        err_set(http->err, http->status,
                "interrupted: what was downloaded is kept, and the next download of %s goes on "
                "from there",
                http->wish->name->id);
    }
    for (size_t i = 0; i < num_jobs; i++) {
        end_request(&jobs[i]);
        free(jobs[i].at);
        jobs[i].at = NULL;
    }
    return http->status;
}
