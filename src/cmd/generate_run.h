/* generate's loop: takes requests from a source, keeps a bounded number of them in the engine, and
 * writes results in input order as soon as they and all before them are there. Memory stays bounded
 * for inputs of any length: so many unfinished requests, and so many bytes of results that wait for
 * an earlier one. */
#ifndef CMD_GENERATE_RUN_H
#define CMD_GENERATE_RUN_H

#include "base/output_file.h"
#include "cmd/progress.h"
#include "cmd/prompt_source.h"
#include "cmd/result_line.h"

enum generate_format {
    GENERATE_JSONL, // one result line each
    GENERATE_LABELS, // "Prompt: ..." and "Completion: ..." of each, quoted
    GENERATE_STREAM, // the text of the only request, as it comes
};

struct generate_task;

struct generate_run {
    struct nvllm_engine *engine; // borrowed
    struct prompt_source *source; // borrowed
    struct output_file *output; // borrowed
    struct progress *progress; // borrowed
    enum generate_format format;
    size_t unfinished_max; // requests in the engine at once
    bool has_times; // result lines have the requests' times
    // Filled by the run.
    uint64_t num_requests; // taken from the source
    uint64_t num_finished; // by themselves
    uint64_t num_refused;
    uint64_t num_aborted;
    bool interrupted;
    char last_refusal[512]; // the sentence of the last refused request
    // The run's own.
    struct generate_task *first, *last; // in input order, not yet written
    struct generate_task *next; // the last of them, while it is not in the engine yet; else NULL
    struct request_line next_line; // of `next`
    size_t num_unfinished; // in the engine
    size_t held_bytes; // of all tasks in the list
    bool source_ended;
    enum status status; // the first fault that ends the run, with its sentence
    struct err err;
    struct buf line;
};

// Runs to the end of the source, to an interrupt or to a fault; in every case what is done is
// written. The status is that of the run itself: refused requests and interrupts are not faults.
MUST_USE enum status generate_run_execute(struct generate_run *run, struct err *err);

#endif
