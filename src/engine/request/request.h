/* What the engine knows of one output of a request, besides its sequence.
 *
 * A caller's request asks for n outputs and becomes n of these structs, linked from output 0, its
 * `first`. They have one id. They are submitted, aborted and freed together, and each ends by
 * itself. */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include <stdatomic.h>

#include "engine/draft/draft_index.h"
#include "engine/draft/drafter.h"
#include "engine/request/output_text.h"
#include "engine/schedule/sequence.h"
#include "engine/step/sampling.h"
#include "nanovllm.h"

// Most that prompt_logprobs may take where they are of the whole vocabulary.
#define REQUEST_ALL_LOGPROBS_BYTES_MAX ((size_t)64 << 20)

// What each step reads of each output stands first, in few cache lines: with many streams the
// caches hold little else from step to step.
struct request {
    struct request *first; // output 0; itself where index is 0
    struct sequence *seq; // its `user` points back here
    nvllm_event_fn on_event; // may be NULL
    void *user_data;
    uint32_t index; // of this output, from 0
    uint32_t counts_slot; // of the token counts (token_count_slots.h); 0: none
    uint32_t num_inflight; // launched steps whose schedules point to its sequence
    // Of output 0 alone, for all outputs:
    uint32_t num_unended; // outputs whose last event is not delivered
    uint32_t num_prompt_rows; // num_prompt_tokens - 1
    // Rows [0, num_rows_launched) are in launched steps. After a preemption within its prompt, a
    // request launches its rows again from the first.
    uint32_t num_rows_launched;
    uint32_t num_rows_finished; // rows [0, num_rows_finished) are in prompt_logprobs
    bool has_ended; // its last event was delivered
    bool finish_event_only;
    bool keeps_stop_token; // the EOS or stop token that ends it is part of its text
    // Of output 0 alone: no more tokens are delivered. The inbox writes it under its mutex; it is
    // also read without.
    atomic_bool is_aborted;
    struct nvllm_times times;
    struct buf event_text; // reserved for the longest text of an event
    // Of output 0 alone: [num_prompt_rows][1 + params.prompt_logprobs], NULL: not wanted. Row i is
    // of prompt token i + 1.
    struct nvllm_logprob *prompt_logprobs;
    struct sampling sampling; // output 0's own; the others borrow from it
    struct output_text text;

    struct request *next_output; // the output with the next index; NULL: none
    // Of output 0 alone, for all outputs:
    uint32_t num_outputs;
    uint32_t num_held; // outputs that have not ended or are in launched steps; 0: all are freed
    struct buf echo; // the prompt's text; data NULL: not wanted
    // Of a request whose answer is a vector; vector NULL: text is generated.
    struct pooled {
        float *vector; // [size] of the hidden states so far, then pooled
        uint32_t size; // the model's hidden_size
        uint32_t dimensions; // to be kept
        bool is_mean, normalizes;
    } pooled;
    // Drafts of its next tokens, where the engine makes any.
    struct draft_index draft_index;
    struct draft_record draft_record;
    uint32_t match_len; // of its last draft
    // Of that draft, the first token and its place in the text, until it is known. 0: none.
    int32_t seen_token;
    uint32_t seen_place;
    bool draft_is_forced; // its last draft is what its form leaves no choice of
    enum nvllm_finish_reason finish_reason; // set when it ends

    // Of output 0 alone. The inbox writes these under its mutex.
    bool is_ending; // the last event of the last output is being delivered
    struct request *next_submitted, *next_aborted;
    struct request *next_in_bucket; // of the request table
};

// Output 0, all else zero.
MUST_USE enum status request_create(struct request **out, struct err *err);
// One more output, linked behind the last; all else zero.
MUST_USE enum status request_create_output(struct request *first, struct request **out,
                                           struct err *err);
// Frees all outputs. NULL and half-built are fine.
void request_destroy(struct request *first);

#endif
