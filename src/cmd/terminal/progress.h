/* The progress line on a terminal, in tqdm's form:
 *   Generating:  42%|####      | 108/256 [00:12<00:16, Prefill=5012tok/s, Decode=1434tok/s]
 *   Loading Qwen3-0.6B:  42%|####      | [00:12<00:16]
 *   Downloading Qwen3-0.6B:  42%|####      | 0.63/1.50 GB [00:12<00:16, 52.3 MB/s]
 * The caller chooses the unit: requests in generate, generated tokens in bench, parameters in a
 * load. Prints nothing if stderr is not a terminal that can erase a line. */
#ifndef CMD_PROGRESS_H
#define CMD_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    bool enabled, shown;
    const char *label; // borrowed: "Generating"
    double started_at, drawn_at; // clock_seconds
    uint64_t total; // 0: unknown
    uint64_t num_before; // bytes of the first progress_bytes
    // Since the last drawing: tokens, and seconds of the steps that ran any.
    double prefill_tokens, prefill_seconds;
    double decode_tokens, decode_seconds;
    double prefill_rate, decode_rate; // tokens per second, as last shown
};

void progress_init(struct progress *progress, const char *label, bool enabled, uint64_t total);
// Call after each step with its tokens and seconds. Draws at most ten times a second.
void progress_step(struct progress *progress, uint64_t num_done, uint64_t num_prefill_tokens,
                   uint64_t num_decode_tokens, double step_seconds);
// The same for a share alone, without a count and rates.
void progress_share(struct progress *progress, uint64_t num_done, uint64_t total);
// The same for bytes, with their rate. The first call's bytes were there before.
void progress_bytes(struct progress *progress, uint64_t num_bytes, uint64_t total);
void progress_clear(struct progress *progress); // before something else is written to the terminal
void progress_finish(struct progress *progress, uint64_t num_done); // draws it a last time

// Writes the line without a newline, cut to `size`. total 0: "Generating: 108 [00:12, ...]".
void progress_format(char *out, size_t size, const char *label, uint64_t num_done, uint64_t total,
                     double elapsed, double prefill_rate, double decode_rate);
// "Loading Qwen3-0.6B:  42%|####      | [00:12<00:16]"; total is not 0.
void progress_format_share(char *out, size_t size, const char *label, uint64_t num_done,
                           uint64_t total, double elapsed);

// "Downloading Qwen3-0.6B:  42%|####      | 0.63/1.50 GB [00:12<00:16, 52.3 MB/s]"; num_before of
// num_done were there before, and do not count for the rate.
void progress_format_bytes(char *out, size_t size, const char *label, uint64_t num_done,
                           uint64_t total, uint64_t num_before, double elapsed);

/* What the terminal can do. */

// Escape sequences: true for every terminal of today; false if TERM is `dumb` or not set.
bool terminal_has_escapes(void);

#endif
