/* An API request: one request of an endpoint that a thread of the pool works on, and that the
 * engine may work on after it. Its way:
 *
 *   loop: api_request_start
 *   pool: endpoint->prepare answers at once (request->result), refuses (request->error), or fills
 *         prompts and options; then each prompt goes to the engine as a request of its own
 *   loop: deltas arrive and are written, or collected for an answer at the end
 *
 * It lives until its job is done and each of its engine's requests has had its last event, also
 * when the client went away long before: then those are aborted, and nothing is written. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include <jansson.h>
#include <stdatomic.h>

#include "server/chat/chat_split.h"
#include "server/loop/api.h"
#include "server/loop/api_error.h"
#include "server/loop/request_info.h"

enum { API_REQUEST_MEMBERS_MAX = 256 }; // most members that an endpoint reads of a body

// What one event of the engine adds to a choice, on its way to the loop: a stream sends it on.
struct choice_delta {
    struct loop_message message;
    struct choice *choice;
    struct choice_delta *next; // while held
    enum nvllm_finish_reason finish;
    int32_t stop_token_id; // -1: none
    uint32_t num_prompt_tokens, num_cached_tokens, num_generated_tokens, num_preemptions;
    struct nvllm_times times;
    const char *text; // [text_len], in the same allocation, as are the others borrowed below
    size_t text_len;
    const int32_t *token_ids; // [num_tokens] as an event has them, and the next three
    const uint32_t *text_ends; // [num_tokens]
    uint32_t num_tokens;
    const struct nvllm_logprob *logprobs; // [num_tokens][1 + num_top]; NULL: none
    size_t num_top;
    const float *embedding; // [num_dimensions]; NULL: none
    uint32_t num_dimensions;
    const char *stop_string, *error; // NULL: none
    struct nvllm_logprob *prompt_logprobs; // as prompt's; owned, and taken by the prompt
    bool has_no_memory; // finish is NVLLM_FINISH_ERROR: memory ran out
};

// One prompt of an API request: one request of the engine, with n outputs.
struct prompt {
    struct api_request *request;
    struct choice *choices; // [n], borrowed from the request
    // The pool's, before the engine has it; constant after it.
    int32_t *ids; // [num_ids]
    size_t num_ids;
    char *echo; // [echo_len] what the answers' texts begin with; NULL: nothing. Owned
    size_t echo_len;
    struct nvllm_sampling_params sampling; // owns no lists: those are the request's
    uint64_t engine_id; // valid once request->num_added is larger than the prompt's index
    bool has_sent_logprobs; // the engine's thread's
    // The loop's: [num_ids - 1][1 + sampling.prompt_logprobs] as an event has them; NULL: none.
    struct nvllm_logprob *logprobs;
};

// One of the answers to an API request: an output of one prompt.
struct choice {
    struct api_request *request;
    struct prompt *prompt;
    uint32_t index; // in the answer: all of the first prompt, then those of the second
    // The engine's thread: a delta found no memory. Its request is aborted, and the choice ends
    // with `last_delta`, which needs none.
    bool is_lost;
    struct choice_delta last_delta;
    // The loop's.
    struct buf text; // of a completion's answer at the end
    struct json_out logprobs; // those that no chunk had yet, as members of a JSON list
    struct json_out logprobs_more[3]; // of completions: the other lists
    struct json_out token_ids; // the same, where the request asks for them
    size_t text_offset; // of the next token, in characters
    bool has_begun; // its first delta came
    bool has_chunk; // its first chunk was sent
    enum nvllm_finish_reason finish;
    int32_t stop_token_id;
    char *stop_string;
    uint32_t num_prompt_tokens, num_cached_tokens, num_generated_tokens;
    uint32_t num_reasoning_tokens; // of the generated ones, tags among them
    struct nvllm_times times;
    struct chat_split *split; // of a chat: divides its text
    struct chat_blocks blocks; // of a chat, where its answer is a list of them
    bool block_is_open; // of a stream: the last block has begun and not ended
    struct buf joined; // of a stream: text of one part that several tokens bring
};

// How the answer is to look: the same for all endpoints that generate.
struct answer_options {
    bool stream, include_usage, continuous_usage;
    bool prompt_logprobs; // as a member of their own; an echo has them elsewhere
    bool token_ids; // the prompt's and the generated ones are in the answer
    bool timings_per_token; // each chunk of a stream has the timings
    bool echo; // the text begins with the prompt's
    bool generates_nothing; // max_tokens is 0: the engine's one token is dropped
    int32_t num_logprobs; // -1: none; of each token and so many best ones
    bool base64; // a vector is the base64 of its float32 numbers, little-endian
    uint32_t num_queries; // of scores: the first prompts, where all are made to vectors
    uint32_t top_n; // of a ranking: so many are shown; 0: all
    bool tokens_as_ids; // tokens in logprobs are "token_id:17"
    const char *model; // borrowed from the body or the api
};

// How a chat is answered.
struct chat_plan {
    struct chat_split_options split;
    bool hides_tools; // tool_choice none, or an empty list: the template does not see them
    bool forces_call; // the answer is nothing but calls
    // Where another API has reasoning_effort: literals. NULL: under its own name.
    const char *effort_member, *effort_part;
    bool has_form; // calls have a form, which is in sampling.structured_outputs
    json_t *form; // the request's structured_outputs, a reference of its own; NULL: none
    const char *role; // of the answer; it may borrow from last_role
    json_t *last_role; // of the last message, a reference of its own; NULL: not needed
    struct buf echo; // what its content begins with
};

// Functions over a request; `out` is JSON, or events of a stream.
struct endpoint {
    const char *id_prefix; // "cmpl-"
    bool repeats_members; // answers repeat what the request said of tools, and its metadata
    // On the pool. False: request->error is set.
    bool (*prepare)(struct api_request *request);
    // The rest runs on the loop, for endpoints that generate.
    // Before the first delta of a stream, once; may be NULL.
    void (*write_begin)(struct api_request *request, struct json_out *out);
    // A delta of a stream: nothing, or a chunk. The choice's counts are those after the delta.
    void (*write_delta)(struct choice *choice, const struct choice_delta *delta,
                        struct json_out *out);
    // The end of a stream in which each choice has had its last delta.
    void (*write_end)(struct api_request *request, struct json_out *out);
    // The end of a stream that failed.
    void (*write_error)(struct api_request *request, const struct api_error *error,
                        struct json_out *out);
    // Keeps what write_whole needs of a delta. False: no memory.
    bool (*collect)(struct choice *choice, const struct choice_delta *delta);
    // The whole answer, without a stream.
    void (*write_whole)(struct api_request *request, struct json_out *out);
    // The body of an error in place of OpenAI's; may be NULL.
    void (*write_refusal)(const struct api_error *error, struct json_out *out);
};

struct api_request {
    struct loop_message message; // the end of the job
    struct work work;
    TAILQ_ENTRY(api_request) link;
    struct api *api;
    const struct endpoint *endpoint;
    struct http_conn *conn; // the loop's; NULL: the client is gone
    struct request_info info;
    char id[48]; // "cmpl-..."
    uint64_t created; // seconds since 1970
    atomic_bool is_cancelled;
    struct nvllm_interrupt interrupt; // asks is_cancelled
    // The pool's until the job is done.
    struct buf body; // JSON, until it is parsed
    json_t *root; // after the job what body_forget leaves
    size_t memory_left; // bytes for trees of JSON texts in the body (api/parsed.h)
    bool keeps_members; // body_forget leaves members that may be as large as the body was
    const char *read_members[API_REQUEST_MEMBERS_MAX]; // [num_read_members] those that root has
    size_t num_read_members;
    char ignored[REQUEST_INFO_IGNORED_BYTES]; // names of members that nobody read: "a, b"; "": none
    uint32_t num_left_out; // tools that `ignored` names
    struct answer_options answer;
    struct chat_plan chat;
    struct nvllm_sampling_params sampling; // owns the lists of all choices
    struct nvllm_pooling pooling; // of an endpoint that wants vectors
    bool wants_vectors;
    const char *cache_salt; // borrowed from root; NULL: none
    struct prompt *prompts; // [num_prompts]
    uint32_t num_prompts;
    struct choice *choices; // [num_choices], n of each prompt
    uint32_t num_choices;
    struct json_out result; // not empty: the answer, nothing is generated
    bool answers_at_once; // prepare wrote the result; its choices do not go to the engine
    struct api_error error;
    atomic_uint num_added; // prompts that the engine has had
    // The loop's.
    size_t body_len; // bytes of it that the server counts among those of all bodies
    bool is_prepared; // the job on the pool is done
    bool is_streaming; // the head was sent
    bool has_written; // of a stream: its beginning
    struct json_out chunk_head; // of a stream: what each chunk has, or each part of a text
    bool is_answered;
    uint32_t num_events; // written so far, of a stream that numbers its events
    bool is_busy; // a function on the stack has the request: it is not freed
    uint32_t num_finished; // choices that had their last delta
    struct choice_delta *held, *last_held; // deltas that came before the end of the job
};

// One without a client, for api_request_start and tests. NULL: no memory.
struct api_request *api_request_create(struct api *api, const struct endpoint *endpoint);
// Neither the pool nor the engine nor a connection has it any more.
void api_request_free(struct api_request *request);
// Reads the HTTP request on `conn` and replies to it.
void api_request_start(struct api *api, struct http_conn *conn, const struct endpoint *endpoint,
                       const struct request_info *info);
// The client is gone.
void api_request_abandon(struct api_request *request);
// Requests that came before `time` (clock_seconds) and still wait get an error.
void api_request_expire(struct api *api, double time);
// The engine is lost: whoever waits gets an error.
void api_request_fail_all(struct api *api);
// After all threads have ended: what is left is freed.
void api_request_free_all(struct api *api);
// The engine is asked to end what the request has there. Any thread.
void api_request_cancel(struct api_request *request);
// False: it was cancelled, and request->error says so. The job asks before it begins and in loops
// over what the client sent.
bool api_request_is_wanted(struct api_request *request);

// ---- for endpoint->prepare ----

// Allocates prompts, each with a copy of the request's sampling, and sampling.n choices of each.
// False: no memory.
bool api_request_make_prompts(struct api_request *request, uint32_t count);
// Text to the prompt's token ids. `param` is the member that has the text.
bool api_request_encode(struct api_request *request, struct prompt *prompt, const char *text,
                        size_t len, bool add_special_tokens, const char *param);
// Checks a prompt against the context, and gives it max_tokens: -1 is what the context has left.
// `param` is where the limit was given. False: request->error is set.
bool api_request_fit(struct api_request *request, struct prompt *prompt, int64_t max_tokens,
                     const char *param);
// Sums over all prompts and choices.
uint32_t api_request_num_prompt_tokens(const struct api_request *request);
uint32_t api_request_num_generated_tokens(const struct api_request *request);
uint32_t api_request_num_cached_tokens(const struct api_request *request);
uint32_t api_request_num_reasoning_tokens(const struct api_request *request);

#endif
