/* Rates are averaged over the steps since the last drawing that ran such tokens. Upstream shows the
 * last step's, which change too fast to read. */
#include "cmd/terminal/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/os/clock.h"

bool terminal_has_escapes(void) {
    const char *terminal = getenv("TERM");
    return terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

enum { LINE_MAX_BYTES = 400, BAR_MAX_BYTES = 200, BAR_WIDTH = 10, DEFAULT_COLUMNS = 80 };

static const double redraw_seconds = 0.1;

void progress_init(struct progress *progress, const char *label, bool enabled, uint64_t total) {
    *progress =
        (struct progress){.enabled = enabled && isatty(STDERR_FILENO) && terminal_has_escapes(),
                          .label = label,
                          .total = total};
    progress->started_at = clock_seconds();
}

// "00:12", or "1:02:03" from an hour on.
static void format_time(char *out, size_t size, double seconds) {
    uint64_t whole = seconds > 0 && seconds < 1e9 ? (uint64_t)seconds : 0;
    unsigned s = (unsigned)(whole % 60), m = (unsigned)(whole / 60 % 60);
    if (whole >= 3600) {
        snprintf(out, size, "%llu:%02u:%02u", (unsigned long long)(whole / 3600), m, s);
    } else {
        snprintf(out, size, "%02u:%02u", m, s);
    }
}

// "Generating:  42%|####      |", and the time that is left as `passed` lets expect.
static void format_bar(char *out, size_t size, const char *label, uint64_t num_done, uint64_t total,
                       double elapsed, char left[32]) {
    double part = num_done >= total ? 1 : (double)num_done / (double)total;
    snprintf(left, 32, "?");
    if (num_done) format_time(left, 32, elapsed / part - elapsed);
    char bar[BAR_WIDTH + 1];
    int filled = (int)(part * BAR_WIDTH);
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)filled);
    bar[BAR_WIDTH] = '\0';
    snprintf(out, size, "%s: %3d%%|%s|", label, (int)(part * 100), bar);
}

void progress_format_share(char *out, size_t size, const char *label, uint64_t num_done,
                           uint64_t total, double elapsed) {
    char bar[BAR_MAX_BYTES], passed[32], left[32];
    format_bar(bar, sizeof bar, label, num_done, total, elapsed, left);
    format_time(passed, sizeof passed, elapsed);
    snprintf(out, size, "%s [%s<%s]", bar, passed, left);
}

void progress_format_bytes(char *out, size_t size, const char *label, uint64_t num_done,
                           uint64_t total, uint64_t num_before, double elapsed) {
    char bar[BAR_MAX_BYTES], passed[32], left[32] = "?", ignored[32];
    bool is_large = total >= 1000000000;
    double unit = is_large ? 1e9 : 1e6;
    uint64_t num_new = num_done > num_before ? num_done - num_before : 0;
    uint64_t num_left = total > num_done ? total - num_done : 0;
    double rate = elapsed > 0 ? (double)num_new / elapsed : 0;
    format_bar(bar, sizeof bar, label, num_done, total ? total : 1, elapsed, ignored);
    format_time(passed, sizeof passed, elapsed);
    if (rate > 0) format_time(left, sizeof left, (double)num_left / rate);
    snprintf(out, size, "%s %.*f/%.*f %s [%s<%s, %.1f MB/s]", bar, is_large ? 2 : 1,
             (double)num_done / unit, is_large ? 2 : 1, (double)total / unit,
             is_large ? "GB" : "MB", passed, left, rate / 1e6);
}

void progress_format(char *out, size_t size, const char *label, uint64_t num_done, uint64_t total,
                     double elapsed, double prefill_rate, double decode_rate) {
    char rates[80], passed[32], left[32], bar[BAR_MAX_BYTES];
    snprintf(rates, sizeof rates, "Prefill=%.0ftok/s, Decode=%.0ftok/s", prefill_rate, decode_rate);
    format_time(passed, sizeof passed, elapsed);
    if (!total) {
        snprintf(out, size, "%s: %llu [%s, %s]", label, (unsigned long long)num_done, passed,
                 rates);
        return;
    }
    format_bar(bar, sizeof bar, label, num_done, total, elapsed, left);
    snprintf(out, size, "%s %llu/%llu [%s<%s, %s]", bar, (unsigned long long)num_done,
             (unsigned long long)total, passed, left, rates);
}

static void draw_line(struct progress *progress, const char *line, double now) {
    struct winsize window;
    int columns = DEFAULT_COLUMNS;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col) columns = window.ws_col;
    // Leaves one column free: a full line would wrap, and then could not be erased.
    fprintf(stderr, "\r%.*s\033[K", columns - 1, line);
    fflush(stderr);
    progress->drawn_at = now;
    progress->shown = true;
}

static bool is_due(const struct progress *progress, double now) {
    return progress->enabled && (!progress->shown || now - progress->drawn_at >= redraw_seconds);
}

void progress_share(struct progress *progress, uint64_t num_done, uint64_t total) {
    double now = clock_seconds();
    if (!is_due(progress, now)) return;
    char line[LINE_MAX_BYTES];
    progress_format_share(line, sizeof line, progress->label, num_done, total,
                          now - progress->started_at);
    draw_line(progress, line, now);
}

void progress_bytes(struct progress *progress, uint64_t num_bytes, uint64_t total) {
    double now = clock_seconds();
    if (!progress->total) {
        progress->total = total ? total : 1;
        progress->num_before = num_bytes;
        progress->started_at = now;
    }
    if (!is_due(progress, now)) return;
    char line[LINE_MAX_BYTES];
    progress_format_bytes(line, sizeof line, progress->label, num_bytes, total,
                          progress->num_before, now - progress->started_at);
    draw_line(progress, line, now);
}

static void draw(struct progress *progress, uint64_t num_done, double now) {
    if (progress->prefill_seconds > 0) {
        progress->prefill_rate = progress->prefill_tokens / progress->prefill_seconds;
    }
    if (progress->decode_seconds > 0) {
        progress->decode_rate = progress->decode_tokens / progress->decode_seconds;
    }
    progress->prefill_tokens = progress->prefill_seconds = 0;
    progress->decode_tokens = progress->decode_seconds = 0;
    char line[LINE_MAX_BYTES];
    progress_format(line, sizeof line, progress->label, num_done, progress->total,
                    now - progress->started_at, progress->prefill_rate, progress->decode_rate);
    draw_line(progress, line, now);
}

void progress_step(struct progress *progress, uint64_t num_done, uint64_t num_prefill_tokens,
                   uint64_t num_decode_tokens, double step_seconds) {
    if (!progress->enabled) return;
    if (num_prefill_tokens) {
        progress->prefill_tokens += (double)num_prefill_tokens;
        progress->prefill_seconds += step_seconds;
    }
    if (num_decode_tokens) {
        progress->decode_tokens += (double)num_decode_tokens;
        progress->decode_seconds += step_seconds;
    }
    double now = clock_seconds();
    if (is_due(progress, now)) draw(progress, num_done, now);
}

void progress_clear(struct progress *progress) {
    if (!progress->shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown = false;
}

void progress_finish(struct progress *progress, uint64_t num_done) {
    if (!progress->enabled) return;
    draw(progress, num_done, clock_seconds());
    fputc('\n', stderr);
    progress->enabled = false;
    progress->shown = false;
}
