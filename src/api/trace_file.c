/* An observer that writes Chrome trace events, the JSON that ui.perfetto.dev and programs read. It
 * uses only the public API.
 *
 * Process 1 is the engine. One track has its phases. Two tracks have its steps from launch to
 * results, because two steps may overlap. Counters follow. Process 2 has a track for each sequence.
 * doc/cli.md lists the events and their arguments.
 *
 * Slices of one track never overlap, because viewers drop those that do. So a sequence's slice
 * begins at its step's launch, or when the step before had its results if that is later. Times are
 * whole microseconds: with fractions, a reader's rounding would make neighbours overlap.
 *
 * The file is a list of events, one on a line. Viewers also read a list without its end, so the
 * file of a killed process is still of use. Events are collected in memory and written in large
 * pieces, always up to the end of a step. So a file that could not be completed ends with a whole
 * event. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/convert.h"
#include "base/os/output_file.h"
#include "base/os/write_whole.h"
#include "base/text/buf.h"

enum { WRITE_BYTES = 64 << 10, NUMBER_BYTES_MAX = 21, NAME_BYTES_MAX = 48 };
// Processes, and their tracks; STEPS is the first of two. Each number is used once among tracks and
// processes, because ui.perfetto.dev names a track by its number alone.
enum { ENGINE = 1, SEQUENCES = 2 };
enum { PHASES = 1, STEPS = 3, NUM_STEP_TRACKS = 2, FIRST_SEQUENCE = 1000000 };

struct nvllm_trace_file {
    struct output_file output;
    bool has_written;
    bool has_header;
    struct buf text; // not written yet
    size_t num_whole; // bytes of text up to the end of the last step
    // When the last step on the track had its results, microseconds.
    uint64_t track_ends[NUM_STEP_TRACKS];
    uint64_t last_results; // of any step, microseconds
    enum status status; // the first fault; steps are left out after it
    struct err err;
};

// ---- text: after a fault these do nothing ----

static void put(struct nvllm_trace_file *file, const char *text) {
    if (!file->status) file->status = buf_append_str(&file->text, text, &file->err);
}

static void put_number(struct nvllm_trace_file *file, uint64_t number) {
    char digits[NUMBER_BYTES_MAX], *at = digits + sizeof digits - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put(file, at);
}

// `key` includes the comma and the colon around it: ",\"a\":".
static void put_member(struct nvllm_trace_file *file, const char *key, uint64_t number) {
    put(file, key);
    put_number(file, number);
}

// Writes a list as a string of numbers, because viewers show each entry of a JSON list as a row.
// "3 1", with a window "- 1"; the tables of several groups as "3 1 | - 5".
static void put_tables(struct nvllm_trace_file *file, const char *key,
                       const struct nvllm_step_item *item, uint32_t count) {
    put(file, key);
    put(file, "\"");
    for (uint32_t g = 0; g < item->num_kv_groups; g++) {
        const uint32_t *table = item->block_table + (size_t)g * item->block_table_stride;
        if (g) put(file, " |");
        for (uint32_t i = 0; i < count; i++) {
            if (g || i) put(file, " ");
            if (table[i] == NVLLM_NO_BLOCK) {
                put(file, "-");
            } else {
                put_number(file, table[i]);
            }
        }
    }
    put(file, "\"");
}

static void put_tokens(struct nvllm_trace_file *file, const char *key, const int32_t *ids,
                       uint32_t count) {
    put(file, key);
    for (uint32_t i = 0; i < count; i++) {
        put(file, i ? " " : "\"");
        if (ids[i] < 0) put(file, "-");
        put_number(file, (uint64_t)llabs(ids[i]));
    }
    put(file, "\"");
}

// ---- events ----

static uint64_t microseconds(double seconds) {
    return (uint64_t)(seconds * 1e6);
}

struct event {
    const char *name, *category;
    const char *phase; // Chrome's word: "X" is a slice, "i" an instant, "C" a counter
    uint64_t process, track;
    uint64_t begin, end; // microseconds; only a slice has an end
};

// Writes an event up to its arguments. The caller adds them and ends with "}}".
static void begin_event(struct nvllm_trace_file *file, const struct event *event) {
    put(file, ",\n{\"name\":\"");
    put(file, event->name);
    put(file, "\",\"cat\":\"");
    put(file, event->category);
    put(file, "\",\"ph\":\"");
    put(file, event->phase);
    put_member(file, "\",\"pid\":", event->process);
    put_member(file, ",\"tid\":", event->track);
    put_member(file, ",\"ts\":", event->begin);
    if (event->phase[0] == 'X') put_member(file, ",\"dur\":", event->end - event->begin);
    if (event->phase[0] == 'i') put(file, ",\"s\":\"t\"");
    put(file, ",\"args\":{");
}

static void name_track(struct nvllm_trace_file *file, uint64_t process, uint64_t track,
                       const char *name) {
    put_member(file, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", process);
    put_member(file, ",\"tid\":", track);
    put(file, ",\"args\":{\"name\":\"");
    put(file, name);
    put(file, "\"}}");
}

// `trace` NULL: there was no step.
static void put_header(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace) {
    file->has_header = true;
    put(file, "[\n"
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"engine\"}},\n"
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":2,"
              "\"args\":{\"name\":\"sequences\"}}");
    name_track(file, ENGINE, PHASES, "phases");
    name_track(file, ENGINE, STEPS, "steps");
    name_track(file, ENGINE, STEPS + 1, "steps that overlap");
    if (!trace) return;
    uint64_t at = microseconds(trace->times.schedule_begin);
    const struct event event = {"configuration", "engine", "i", ENGINE, PHASES, at, at};
    begin_event(file, &event);
    put_member(file, "\"block_size\":", trace->block_size);
    put_member(file, ",\"num_kv_blocks\":", trace->num_kv_blocks);
    put(file, "}}");
}

static void put_phase(struct nvllm_trace_file *file, uint64_t step, const char *name, double begin,
                      double end) {
    const struct event event = {
        name, "phase", "X", ENGINE, PHASES, microseconds(begin), microseconds(end)};
    begin_event(file, &event);
    put_member(file, "\"step\":", step);
    put(file, "}}");
}

static void put_phases(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace) {
    const struct nvllm_step_times *times = &trace->times;
    put_phase(file, trace->step, "schedule", times->schedule_begin, times->launch_begin);
    put_phase(file, trace->step, "launch", times->launch_begin, times->launch_end);
    if (microseconds(times->sample_begin) < microseconds(times->launch_end)) {
        put_phase(file, trace->step, "sample", times->sample_begin, times->launch_end);
    }
    put_phase(file, trace->step, "wait", times->wait_begin, times->output_begin);
    put_phase(file, trace->step, "output", times->output_begin, times->output_end);
}

// Writes a slice from launch to results, on the first track that is free at the launch.
static void put_step(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace) {
    uint64_t begin = microseconds(trace->times.launch_begin);
    uint64_t end = microseconds(trace->times.output_begin);
    uint32_t track = file->track_ends[0] <= begin ? 0 : 1;
    file->track_ends[track] = end;
    char name[NAME_BYTES_MAX];
    snprintf(name, sizeof name, "step %" PRIu64, trace->step);
    const struct event event = {name, "step", "X", ENGINE, STEPS + track, begin, end};
    begin_event(file, &event);
    put_member(file, "\"step\":", trace->step);
    put_member(file, ",\"num_sequences\":", trace->num_items);
    put_member(file, ",\"num_prefill_tokens\":", trace->num_prefill_tokens);
    put_member(file, ",\"num_decode_tokens\":", trace->num_decode_tokens);
    put(file, "}}");
}

static void begin_sequence_event(struct nvllm_trace_file *file, const char *name, const char *phase,
                                 uint64_t sequence_id, uint64_t begin, uint64_t end) {
    uint64_t track = FIRST_SEQUENCE + sequence_id;
    const struct event event = {name, "sequence", phase, SEQUENCES, track, begin, end};
    begin_event(file, &event);
    put_member(file, "\"sequence\":", sequence_id);
}

static void begin_instant(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace,
                          const char *name, uint64_t sequence_id) {
    uint64_t at = microseconds(trace->times.schedule_begin);
    begin_sequence_event(file, name, "i", sequence_id, at, at);
    put_member(file, ",\"step\":", trace->step);
}

static void put_admission(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace,
                          const struct nvllm_step_item *item) {
    char name[NAME_BYTES_MAX];
    int len = snprintf(name, sizeof name, "request %" PRIu64, item->request_id);
    if (item->index) snprintf(name + len, sizeof name - (size_t)len, ", output %u", item->index);
    name_track(file, SEQUENCES, FIRST_SEQUENCE + item->sequence_id, name);
    if (!item->num_hit_blocks) return;
    begin_instant(file, trace, "prefix hit", item->sequence_id);
    put_member(file, ",\"num_tokens\":", (uint64_t)item->num_hit_blocks * trace->block_size);
    put_tables(file, ",\"blocks\":", item, item->num_hit_blocks);
    put(file, "}}");
}

static void put_item(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace,
                     const struct nvllm_step_item *item, uint64_t begin, uint64_t end) {
    char name[NAME_BYTES_MAX] = "decode";
    if (item->is_prefill) {
        snprintf(name, sizeof name, "prefill %u..%u", item->first_position,
                 item->first_position + item->num_tokens - 1);
    }
    begin_sequence_event(file, name, "X", item->sequence_id, begin, end);
    put_member(file, ",\"request\":", item->request_id);
    if (item->index) put_member(file, ",\"index\":", item->index);
    put_member(file, ",\"step\":", trace->step);
    put_member(file, ",\"num_prompt_tokens\":", item->num_prompt_tokens);
    put_member(file, ",\"first_position\":", item->first_position);
    put_tokens(file, ",\"tokens\":", item->token_ids, item->num_tokens);
    put_tables(file, ",\"block_table\":", item, item->num_blocks);
    if (item->num_drafts) put_member(file, ",\"num_drafts\":", item->num_drafts);
    if (item->num_output_tokens) {
        put_tokens(file, ",\"output\":", item->output_token_ids, item->num_output_tokens);
    }
    if (item->finish_reason) {
        put(file, ",\"finish_reason\":\"");
        put(file, nvllm_finish_reason_name(item->finish_reason));
        put(file, "\"");
    }
    put(file, "}}");
}

static void put_sequences(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace) {
    uint64_t begin = microseconds(trace->times.launch_begin);
    uint64_t end = microseconds(trace->times.output_begin);
    if (begin < file->last_results) begin = file->last_results;
    file->last_results = end;
    for (uint32_t i = 0; i < trace->num_preempted; i++) {
        begin_instant(file, trace, "preempted", trace->preempted[i]);
        put(file, "}}");
    }
    for (uint32_t i = 0; i < trace->num_items; i++) {
        const struct nvllm_step_item *item = &trace->items[i];
        if (item->is_admitted) put_admission(file, trace, item);
        put_item(file, trace, item, begin, end);
    }
}

// Writes the blocks with this change, if there are any.
static void put_changed(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace,
                        enum nvllm_block_change change, const char *key) {
    bool is_first = true;
    for (uint32_t i = 0; i < trace->num_blocks; i++) {
        if (!(trace->blocks[i].changes & (uint32_t)change)) continue;
        put(file, is_first ? key : " ");
        put_number(file, trace->blocks[i].block_id);
        is_first = false;
    }
    if (!is_first) put(file, "\"");
}

static void put_block_changes(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace) {
    if (!trace->num_blocks) return;
    uint64_t at = microseconds(trace->times.output_end);
    const struct event event = {"blocks", "blocks", "i", ENGINE, PHASES, at, at};
    begin_event(file, &event);
    put_member(file, "\"step\":", trace->step);
    put_member(file, ",\"num_taken\":", trace->num_blocks_taken);
    put_member(file, ",\"num_freed\":", trace->num_blocks_freed);
    put_changed(file, trace, NVLLM_BLOCK_TAKEN, ",\"taken\":\"");
    put_changed(file, trace, NVLLM_BLOCK_HIT, ",\"hit\":\"");
    put_changed(file, trace, NVLLM_BLOCK_SHARED, ",\"shared\":\"");
    put_changed(file, trace, NVLLM_BLOCK_CACHED, ",\"cached\":\"");
    put_changed(file, trace, NVLLM_BLOCK_LEFT, ",\"left\":\"");
    put(file, "}}");
}

static void put_counters(struct nvllm_trace_file *file, const struct nvllm_step_trace *trace) {
    uint64_t at = microseconds(trace->times.output_end);
    const struct event blocks = {"KV blocks", "counter", "C", ENGINE, PHASES, at, at};
    begin_event(file, &blocks);
    put_member(file, "\"used\":", trace->num_kv_blocks_used);
    put_member(file, ",\"cached\":", trace->num_kv_blocks_cached);
    put_member(file, ",\"free\":", trace->num_kv_blocks_free);
    put(file, "}}");
    const struct event sequences = {"sequences", "counter", "C", ENGINE, PHASES, at, at};
    begin_event(file, &sequences);
    put_member(file, "\"running\":", trace->num_running);
    put_member(file, ",\"waiting\":", trace->num_waiting);
    put(file, "}}");
    at = microseconds(trace->times.launch_begin);
    const struct event tokens = {"tokens", "counter", "C", ENGINE, PHASES, at, at};
    begin_event(file, &tokens);
    put_member(file, "\"prefill\":", trace->num_prefill_tokens);
    put_member(file, ",\"decode\":", trace->num_decode_tokens);
    put(file, "}}");
}

// ---- the file ----

void nvllm_trace_file_abandon(struct nvllm_trace_file *file) {
    if (!file) return;
    output_file_abandon(&file->output);
    buf_fini(&file->text);
    free(file);
}

enum nvllm_status nvllm_trace_file_open(struct nvllm_trace_file **out, const char *path,
                                        struct nvllm_error *error) {
    struct err err = {0};
    *out = NULL;
    struct nvllm_trace_file *file = calloc(1, sizeof *file);
    if (!file) return api_error(error, err_nomem(&err, "trace"), &err);
    enum status status = output_file_open(&file->output, path, &err);
    if (!status) status = buf_reserve(&file->text, 2 * WRITE_BYTES, &err);
    if (status) {
        nvllm_trace_file_abandon(file);
        return api_error(error, status, &err);
    }
    *out = file;
    return NVLLM_OK;
}

static bool write_out(struct nvllm_trace_file *file, const char *text, size_t len) {
    struct err err;
    enum status status = output_file_write(&file->output, text, len, &err);
    if (status && !file->status) {
        file->status = status;
        file->err = err;
    }
    return !status;
}

// Writes the whole steps collected so far.
static void flush(struct nvllm_trace_file *file) {
    if (file->output.failed || !file->num_whole) return;
    if (write_out(file, file->text.data, file->num_whole)) file->has_written = true;
    buf_clear(&file->text);
    file->num_whole = 0;
}

void nvllm_trace_file_step(const struct nvllm_step_trace *trace, void *user_data) {
    struct nvllm_trace_file *file = user_data;
    if (file->status) return;
    if (!file->has_header) put_header(file, trace);
    if (trace->step) {
        put_phases(file, trace);
        put_step(file, trace);
        put_sequences(file, trace);
    }
    put_block_changes(file, trace);
    put_counters(file, trace);
    if (file->status) return; // the text ends with part of a step
    file->num_whole = file->text.len;
    if (file->num_whole >= WRITE_BYTES) flush(file);
}

static void complete(struct nvllm_trace_file *file) {
    static const char end[] = "\n]\n";
    if (!file->has_header) {
        put_header(file, NULL);
        if (!file->status) file->num_whole = file->text.len;
    }
    flush(file);
    if (!file->has_written) return;
    if (!file->output.failed) {
        write_out(file, end, sizeof end - 1);
    } else { // on a full disk a few bytes often fit when a large piece did not
        write_whole(file->output.fd, end, sizeof end - 1);
    }
}

enum nvllm_status nvllm_trace_file_close(struct nvllm_trace_file *file, struct nvllm_error *error) {
    if (!file) return NVLLM_OK;
    complete(file);
    struct err err = {0};
    enum status closed = output_file_close(&file->output, &err);
    enum status status = file->status ? file->status : closed;
    if (file->status) err = file->err;
    nvllm_trace_file_abandon(file);
    return api_error(error, status, &err);
}
