/* nanovllm: the public C API. The only header that is installed.
 *
 * An engine loads a Hugging Face checkpoint folder, keeps its weights and paged KV cache, and runs
 * requests by continuous batching:
 *
 *     struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
 *     options.model = "models/tiny-qwen3";
 *     struct nvllm_error error = {0};
 *     struct nvllm_engine *engine = NULL;
 *     if (nvllm_engine_create(&engine, &options, &error) != NVLLM_OK) puts(error.message);
 *     ... nvllm_engine_add_request(engine, &request, &id, &error) ...
 *     while (nvllm_engine_has_unfinished(engine)) nvllm_engine_step(engine, &error);
 *     nvllm_engine_destroy(engine);
 *
 * Threads: one thread at a time drives an engine: create, step, wait, generate and destroy. All other
 * functions of an engine may be called by any thread at any time between create and destroy: while
 * another thread steps, and from an event. Several engines may live in one process. Tokenizers and
 * chat templates are read-only after opening and may be shared, an engine's own too.
 * Nothing here exits, prints, or reads the environment.
 * Errors: functions that can fail return enum nvllm_status and, where `error` is not NULL, write
 * one sentence to it. Structs with a `struct_size` field must be initialised with their _INIT
 * macro (any other size is refused); a newer library will accept the sizes of older headers.
 * Text is UTF-8; token ids are int32_t. */
#ifndef NANOVLLM_H
#define NANOVLLM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NVLLM_API __attribute__((visibility("default")))
#else
#define NVLLM_API
#endif

#define NVLLM_VERSION_MAJOR 0
#define NVLLM_VERSION_MINOR 1
#define NVLLM_VERSION_PATCH 0

// "0.1.0": the version of the library that is running, which may differ from the header's.
NVLLM_API const char *nvllm_version(void);
// sizeof a struct of this header in the library that is running ("nvllm_event"), 0 for any other
// name. For bindings, which write the structs down a second time and want to know when they differ.
NVLLM_API size_t nvllm_struct_size(const char *name);

// ---- errors ----

enum nvllm_status {
    NVLLM_OK = 0,
    NVLLM_ERR_INVALID, // an argument or request that can never be served
    NVLLM_ERR_FORMAT, // a file or text that breaks its format's rules
    NVLLM_ERR_IO, // the operating system refused
    NVLLM_ERR_NOMEM, // host or device memory did not suffice
    NVLLM_ERR_CAPACITY, // too many requests wait: retry later; or the engine is draining
    NVLLM_ERR_UNSUPPORTED, // valid input that this version cannot run
    NVLLM_ERR_DEVICE, // the accelerator or a worker failed; the engine is lost
    NVLLM_ERR_INTERRUPTED, // the caller asked for an end: nvllm_interrupt
};

struct nvllm_error {
    enum nvllm_status status;
    char message[496]; // one sentence: a printable line of UTF-8, NUL-terminated
};

// ---- interrupts ----

// How a caller ends a call that may take seconds. The call asks `is_wanted` some hundred times a
// second (nvllm_engine_create: before each matrix), on its own thread; any other answer than 0 ends
// it with NVLLM_ERR_INTERRUPTED. A NULL pointer to this struct, or a NULL function, never ends
// anything.
typedef int (*nvllm_is_wanted_fn)(void *user_data);
struct nvllm_interrupt {
    nvllm_is_wanted_fn is_wanted;
    void *user_data;
};

// ---- sampling parameters ----

// A field left at its UNSET value takes the model's own default (generation_config.json) where the
// model gives one, else the library's, named at the field.
#define NVLLM_UNSET_FLOAT (-1.0e30f)
#define NVLLM_UNSET_INT INT32_MIN

enum { NVLLM_LOGPROBS_MAX = 20 };

struct nvllm_logit_bias {
    int32_t token_id;
    float bias; // [-100, 100], added to the logit; -INFINITY bans the token
};

// Fields, defaults and ranges are one table in the library (nvllm_sampling_param).
struct nvllm_sampling_params {
    size_t struct_size;
    float temperature; // [0, 100], below 1e-5 = greedy; unset: model's, else 1
    float top_p; // (0, 1]; unset: model's, else 1 = off
    float min_p; // [0, 1]; unset: model's, else 0 = off
    int32_t top_k; // 0 or -1 = off; unset: model's, else off
    float repetition_penalty; // (0, 10]; unset: model's, else 1 = off
    float presence_penalty; // [-2, 2]; default 0
    float frequency_penalty; // [-2, 2]; default 0
    int32_t max_tokens; // >= 1 generated tokens; default 256
    int32_t min_tokens; // the first so many neither end the output nor are looked at for stop
        // strings; at most max_tokens; default 0
    int32_t skip_special_tokens; // 1: the text has no special tokens; default 1
    // 1: the text has what ended it, the stop string or the EOS or stop token; default 0
    int32_t include_stop_str_in_output;
    int32_t ignore_eos; // 1: only max_tokens, stop strings and stop_token_ids end the request
    int32_t n; // outputs, 1..1024, each drawn for itself; the prompt is computed once; default 1
    int32_t logprobs; // -1 = none; 0..20 = of the chosen token and of that many best ones
    // -1 = none; 0..20 = of each token of the prompt and of that many best ones in its place. The prompt
    // is then computed in whole: cached prefixes are not read.
    int32_t prompt_logprobs;
    int32_t echo; // 1: the text begins with the prompt's; default 0
    int32_t priority; // the lower, the sooner a request runs, and the later it is preempted; equal
        // ones go by arrival; default 0
    // -1 = from the engine's seed and the request's number; else >= 0. Output i draws with seed + i.
    int64_t seed;
    const int32_t *stop_token_ids; // [num_stop_token_ids], borrowed until the request is added
    size_t num_stop_token_ids; // at most 1024
    const char *const *stop; // [num_stop] NUL-terminated strings of 1 to 1024 bytes; borrowed
    size_t num_stop; // at most 16
    const struct nvllm_logit_bias *logit_bias; // [num_logit_bias], borrowed
    size_t num_logit_bias; // at most 1024
    // [num_allowed_token_ids] of which alone the output is made, EOS too; none: all. Borrowed
    const int32_t *allowed_token_ids;
    size_t num_allowed_token_ids; // at most 262144
    // [num_bad_words] NUL-terminated strings of 1 to 256 bytes that are not generated; borrowed. As in
    // vLLM a word is banned as the tokens that it has at the start of a text and, where that is as many
    // tokens and another first one, behind a space: of several tokens the last one, where the
    // output ends with the others.
    const char *const *bad_words;
    size_t num_bad_words; // at most 1024
    void *owned; // memory behind the lists when nvllm_sampling_params_set made them. It moves
        // with the struct; a copy with owned = NULL borrows the lists and may set its own
};

#define NVLLM_SAMPLING_PARAMS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct nvllm_sampling_params), NVLLM_UNSET_FLOAT, NVLLM_UNSET_FLOAT,                \
            NVLLM_UNSET_FLOAT, NVLLM_UNSET_INT, NVLLM_UNSET_FLOAT, 0.0f, 0.0f, 256, 0, 1, 0, 0, 1, \
            -1, -1, 0, 0, -1, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL                    \
    }

// ---- engine options ----

// A NULL string other than `model` means its default.
struct nvllm_engine_options {
    size_t struct_size;
    const char *model; // folder with config.json, *.safetensors, tokenizer.json; required
    const char *device; // "auto" (default; cuda where there is one, else cpu), "cuda", "cpu"
    const char *dtype; // weights: "auto" (default; bfloat16), "bfloat16", "float32"
    const char *load_format; // "auto" (default), "dummy": random weights, only config.json is read
    const char *schedule; // "mixed" (default), "prefill-first"
    const char *cpu_isa; // "auto" (default), "scalar", "avx2", "avx512", "avx512-bf16", "amx"
    int32_t threads; // CPU threads; 0 (default) = the cores this process may use, at most 1024
    int32_t
        max_num_seqs; // active sequences at most, and at most max_num_batched_tokens; default 256
    int32_t max_num_batched_tokens; // tokens of one step at most; default 2048
    // Bounds on the requests that wait for their first step; 0 (default) = none. A request that would
    // exceed one is refused with NVLLM_ERR_CAPACITY, unless no other waits. One with n outputs counts as
    // n requests.
    int32_t max_num_waiting; // requests
    int64_t max_waiting_tokens; // tokens of their prompts
    int32_t max_model_len; // prompt + generated at most; 0 (default) = 4096 or the model's maximum
    int32_t block_size; // tokens of a KV block, a multiple of 16; default 16
    int32_t
        num_kvcache_blocks; // 0 (default) = from kv_cache_gib; else that many, kv_cache_gib unused
    double kv_cache_gib; // 0 (default) = on a GPU what gpu_memory_utilization leaves; on a CPU a
        // quarter of the free memory, at most 4 GiB, at least one sequence of max_model_len
    int32_t enable_prefix_caching; // default 1
    int32_t skip_tokenizer_init; // 1: no tokenizer.json needed, prompts are token ids only
    int64_t seed; // >= 0; default 0
    const char *chat_template; // file of Jinja source; NULL (default) = the model's own
    double gpu_memory_utilization; // share of the GPU's memory for everything, (0, 1]; default 0.9.
        // The KV cache fills it, unless its size is given
    int32_t enforce_eager; // 1: no CUDA graphs; default 0
    const char *async_scheduling; // prepare a step while the one before runs: "auto" (default; on
        // a GPU), "on", "off"
    const char *cache_dir; // folder for what only the first start measures, made when needed in
        // one that exists; NULL (default): none
    const char *quantization; // weights made smaller while loading, on a CPU: "none" (default),
        // "int8", "int4"
    const char *kv_cache_dtype; // how keys and values are kept: "auto" (default; bfloat16),
        // "bfloat16", "float32" (on a CPU)
    // Ends nvllm_engine_create, which asks before it loads each matrix; NULL: none. Not a parameter
    // of the table.
    const struct nvllm_interrupt *interrupt;
};

#define NVLLM_ENGINE_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct nvllm_engine_options), NULL, "auto", "auto", "auto", "mixed", "auto", 0,     \
            256, 2048, 0, 0, 0, 16, 0, 0.0, 1, 0, 0, NULL, 0.9, 0, "auto", NULL, "none", "auto",   \
            NULL                                                                                   \
    }

// ---- the parameter table: one source for C, command line, JSON and other languages ----

enum nvllm_param_type {
    NVLLM_PARAM_INT, // int32_t
    NVLLM_PARAM_INT64, // int64_t
    NVLLM_PARAM_FLOAT, // float
    NVLLM_PARAM_DOUBLE, // double
    NVLLM_PARAM_BOOL, // int32_t, 0 or 1
    NVLLM_PARAM_STRING, // const char *, one of `choices` where given
    NVLLM_PARAM_STRINGS, // list of strings
    NVLLM_PARAM_IDS, // list of token ids
    NVLLM_PARAM_BIASES, // map of token id -> bias
};

struct nvllm_param {
    const char *name; // as in JSON: "max_tokens"
    enum nvllm_param_type type;
    size_t offset; // of the field in its struct, bytes
    double min, max; // numbers: the closed range of accepted values
    const char *choices; // strings: "auto|cpu"; NULL: any
    const char *help; // one line, lower case, with unit and default
};

// The i-th parameter of each struct, NULL past the end.
NVLLM_API const struct nvllm_param *nvllm_sampling_param(size_t index);
NVLLM_API const struct nvllm_param *nvllm_engine_option(size_t index);

// Sets one field by name from JSON text ("0.7", "true", "[\"a\", \"b\"]"; a bare word is taken as a
// string). An unknown name suggests the nearest. Lists are copied into params->owned.
NVLLM_API enum nvllm_status nvllm_sampling_params_set(struct nvllm_sampling_params *params,
                                                      const char *name, const char *value,
                                                      struct nvllm_error *error);
// Frees what nvllm_sampling_params_set allocated and resets the fields to INIT.
NVLLM_API void nvllm_sampling_params_fini(struct nvllm_sampling_params *params);
// As above for options, but a string option is taken as it is, without quotes, and borrows `value`;
// the word null resets any option.
NVLLM_API enum nvllm_status nvllm_engine_options_set(struct nvllm_engine_options *options,
                                                     const char *name, const char *value,
                                                     struct nvllm_error *error);

// ---- tokenizer ----

struct nvllm_tokenizer;

// `model` is a checkpoint folder or the path of a tokenizer.json. Added tokens that
// tokenizer_config.json beside it lists ("added_tokens_decoder") are part of the tokenizer.
NVLLM_API enum nvllm_status nvllm_tokenizer_open(struct nvllm_tokenizer **out, const char *model,
                                                 struct nvllm_error *error);
NVLLM_API void nvllm_tokenizer_close(struct nvllm_tokenizer *tokenizer); // NULL is fine
// *ids [*num_ids] is the caller's (nvllm_free). Special tokens written in the text are recognised;
// add_special_tokens also adds what the tokenizer's post-processor adds (a BOS token, say).
// NVLLM_ERR_INVALID: a text of more than 682 MiB, or one on which the tokenizer's patterns backtrack
// for more steps than a multiple of its length. `interrupt` may be NULL.
NVLLM_API enum nvllm_status nvllm_tokenizer_encode(const struct nvllm_tokenizer *tokenizer,
                                                   const char *text, size_t text_len,
                                                   int add_special_tokens,
                                                   const struct nvllm_interrupt *interrupt,
                                                   int32_t **ids, size_t *num_ids,
                                                   struct nvllm_error *error);
enum nvllm_decode_flags {
    NVLLM_DECODE_SKIP_SPECIAL = 1, // special tokens add no text
    // Ids without a token add no text either; else they are an error. Models whose vocabulary is
    // padded can generate such ids.
    NVLLM_DECODE_SKIP_UNKNOWN = 2,
};
// *text [*text_len], NUL-terminated, is the caller's (nvllm_free). `flags` is 0 or a sum of
// enum nvllm_decode_flags.
NVLLM_API enum nvllm_status nvllm_tokenizer_decode(const struct nvllm_tokenizer *tokenizer,
                                                   const int32_t *ids, size_t num_ids, int flags,
                                                   char **text, size_t *text_len,
                                                   struct nvllm_error *error);
NVLLM_API void nvllm_free(void *p);

// ---- chat templates ----

struct nvllm_chat_template; // read-only after opening and may be shared by threads

// Opening and rendering a template, which is nested at most 200 deep and calls itself at most 600
// deep, over JSON of at most 64 levels, takes no more stack than this.
enum { NVLLM_CHAT_STACK_BYTES = 512 * 1024 };

// The chat template of a checkpoint folder: chat_template.jinja and additional_chat_templates/
// NAME.jinja, else chat_template in tokenizer_config.json (a string, or a list of named ones), else
// in chat_template.json. "tool_use" is for chats with tools where there is one, "default" for all
// others. bos_token and the like come from tokenizer_config.json, and from special_tokens_map.json
// where that does not name them or is of the old form without added_tokens_decoder. `path` (NULL:
// none) is a file of Jinja source to use in the template's place; `model` may then be NULL, and the
// template has no bos_token and the like but those given to render. ERR_INVALID: the folder has no
// template. Of two named templates one may be broken: then the chats that need it are refused.
NVLLM_API enum nvllm_status nvllm_chat_template_open(struct nvllm_chat_template **out,
                                                     const char *model, const char *path,
                                                     struct nvllm_error *error);
NVLLM_API void nvllm_chat_template_close(struct nvllm_chat_template *chat_template); // NULL is fine
// The prompt for a chat. `chat` [chat_len] is JSON, a list of messages or an object
//   {"messages": [{"role": "user", "content": "Hi"}, ...],   at least one;
//                                                            content: a string or a list of text
//                                                            parts {"type": "text", "text": ...};
//                                                            an assistant's may be null or left out
//    "tools": [...], "documents": [...],                     optional, as transformers takes them
//    "add_generation_prompt": true,                          default: true
//    "continue_final_message": false,                        default: false; true excludes the other
//    "chat_template_kwargs": {"enable_thinking": false},     optional, further variables
//    "now": "2026-01-02T03:04:05"}                           optional, for strftime_now in place of
//                                                            the local time; ISO 8601
// Any other member is an error. Messages may have any further fields a template reads. Arguments of
// tool calls that are JSON text of an object are passed as that object, none as {}, and tool_calls
// that are null or empty are left out, as vLLM does. Where the template takes only strings, text
// parts are joined by newlines. Where it fails over an assistant's missing content, or prints None
// for it, the content is null, or else "". chat_template_kwargs win over special tokens of the same name; the
// names messages, tools, documents, add_generation_prompt and continue_final_message are refused in
// them. *text [*text_len], NUL-terminated, is the caller's (nvllm_free); it is to be encoded without
// add_special_tokens, for a template writes its own BOS. Where the template raised an error, the
// sentence has its name and line. `interrupt` may be NULL.
// JSON: integers of up to 4300 digits print as they are written; templates compare those beyond 64
// bits, but do not calculate with them. ERR_FORMAT: no JSON, which NaN and Infinity are not;
// duplicate keys, of which two readers may take different values; a real number beyond a double.
// ERR_UNSUPPORTED: more than 64 levels of nesting, or values so many and small that the tree would
// take more than 16 MiB and 40 bytes for each byte of `chat`. Nothing is allocated before that is
// known. The render takes at most 64 MiB and 16 bytes for each byte more.
// ERR_INVALID: the template took more than 34 million steps, or fewer for a small chat: what it does
// ends after seconds.
NVLLM_API enum nvllm_status nvllm_chat_template_render(
    const struct nvllm_chat_template *chat_template, const char *chat, size_t chat_len,
    const struct nvllm_interrupt *interrupt, char **text, size_t *text_len,
    struct nvllm_error *error);
// The template over variables of the caller's own. `variables` [variables_len] is a JSON object
// whose members are the template's variables as they are: nothing is added (no special tokens),
// checked or changed. A member "now" is no variable but what it is above.
NVLLM_API enum nvllm_status nvllm_chat_template_render_raw(
    const struct nvllm_chat_template *chat_template, const char *variables, size_t variables_len,
    const struct nvllm_interrupt *interrupt, char **text, size_t *text_len,
    struct nvllm_error *error);

// ---- requests and their events ----

enum nvllm_finish_reason {
    NVLLM_FINISH_NONE = 0, // still running
    NVLLM_FINISH_STOP, // EOS, a stop token or a stop string
    NVLLM_FINISH_LENGTH, // max_tokens or max_model_len
    NVLLM_FINISH_ABORT, // nvllm_engine_abort, an interrupt, or the engine was destroyed
    NVLLM_FINISH_ERROR, // refused (nvllm_engine_generate only), no logit is a number, device failed
};
NVLLM_API const char *nvllm_finish_reason_name(enum nvllm_finish_reason reason); // "stop", ...

struct nvllm_logprob {
    int32_t token_id;
    // Natural logarithm, of the model's distribution before temperature and penalties.
    float logprob;
};

// When things happened to a request: seconds of CLOCK_MONOTONIC, 0 = not yet.
struct nvllm_times {
    double arrival; // nvllm_engine_add_request was called
    double first_scheduled; // its first step began
    double first_token, last_token; // the results of their steps were there
};

// What happened to one of a request's n outputs: one generated token, its end, or both. With echo
// there is one event more before its first token, without a token, whose text is the prompt's.
// Everything is borrowed and valid during the callback only.
struct nvllm_event {
    uint64_t request_id;
    uint32_t index; // of the output, below n
    // Outputs of the request whose end is still to come after this event; 0: this is its last event.
    uint32_t num_outputs_left;
    // The token generated now; -1: none (an abort, text held back until the end, or an echo).
    int32_t token_id;
    const char *text; // [text_len] new text, whole characters; NUL-terminated, may be empty
    size_t text_len; // a token may add none: half a character or a possible stop string waits
    const struct nvllm_logprob *chosen; // the token's own logprob; NULL when not asked for
    const struct nvllm_logprob *top; // [num_top] best first
    size_t num_top;
    // [num_prompt_tokens - 1][1 + num_prompt_top]: row i is of prompt token i + 1, for the first follows
    // nothing: its own, then the best ones. NULL: not asked for, or not there yet.
    const struct nvllm_logprob *prompt_logprobs;
    size_t num_prompt_top;
    enum nvllm_finish_reason finish_reason; // NVLLM_FINISH_NONE: more to come
    const char *error; // why, with NVLLM_FINISH_ERROR; else NULL
    int32_t stop_token_id; // which EOS or stop token ended it; -1: none
    const char *stop_string; // which stop string ended it; NULL: none
    const int32_t *prompt_token_ids; // [num_prompt_tokens]
    uint32_t num_prompt_tokens;
    // Prompt tokens found in the prefix cache when the request was first scheduled; for all outputs
    // the same, for they share one prompt.
    uint32_t num_cached_tokens;
    uint32_t num_generated_tokens; // of this output
    const int32_t *token_ids; // [num_generated_tokens] all of them so far
    struct nvllm_times times;
};

// Called on the engine's thread, from nvllm_engine_step, _wait, _generate or _destroy; events never
// nest. It may call every function that any thread may: a request that it adds or aborts is taken in
// by the next step. It may not drive the engine: step, wait and generate return NVLLM_ERR_INVALID
// there, and destroy does nothing.
typedef void (*nvllm_event_fn)(const struct nvllm_event *event, void *user_data);

// Exactly one of prompt, prompt_token_ids and chat is given; the others are NULL.
struct nvllm_request {
    size_t struct_size;
    const char *prompt; // [prompt_len] text
    size_t prompt_len; // bytes
    const int32_t *prompt_token_ids; // [num_prompt_token_ids]
    size_t num_prompt_token_ids;
    const char *chat; // [chat_len] JSON as nvllm_chat_template_render takes it
    size_t chat_len; // bytes
    const struct nvllm_sampling_params *sampling; // NULL: all defaults
    // Requests share cached prefixes only within one salt; NULL: the common one.
    const char *cache_salt;
    nvllm_event_fn on_event; // NULL: none
    void *user_data;
    // 1: on_event is called once for each output, at its end, with an empty text and no logprobs: for programs that
    // want token_ids alone, and callbacks that cost more than a token.
    int32_t finish_event_only;
    // 1: the text has the EOS or stop token that ends it also without include_stop_str_in_output, so
    // that without stop strings and skip_special_tokens it is the text of all token_ids.
    int32_t keep_stop_token;
    // Ends nvllm_engine_add_request while it makes the prompt and its token ids; NULL: none.
    const struct nvllm_interrupt *interrupt;
};

#define NVLLM_REQUEST_INIT                                                                         \
    { sizeof(struct nvllm_request), NULL, 0, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, NULL }

// ---- engine ----

struct nvllm_engine;

NVLLM_API enum nvllm_status nvllm_engine_create(struct nvllm_engine **out,
                                                const struct nvllm_engine_options *options,
                                                struct nvllm_error *error);
// Unfinished requests end with NVLLM_FINISH_ABORT first. NULL is fine. Called from an event it does
// nothing: the engine stays and is to be destroyed after the call that delivers the event. No other
// thread may be in a function of the engine, or call one afterwards.
NVLLM_API void nvllm_engine_destroy(struct nvllm_engine *engine);

// ---- engine: any thread ----

// Copies everything in `request`, makes its prompt's token ids and allocates all that it will need,
// on the caller's thread. The next step takes it in; requests run in the order of their priority, then
// of their ids. A request
// that can never run (empty, too long for max_model_len or for the whole KV cache, a bad parameter or
// token id) is refused with a sentence. NVLLM_ERR_CAPACITY: too many requests wait (max_num_waiting,
// max_waiting_tokens), or the engine is draining. NVLLM_ERR_DEVICE: the engine has failed.
NVLLM_API enum nvllm_status nvllm_engine_add_request(struct nvllm_engine *engine,
                                                     const struct nvllm_request *request,
                                                     uint64_t *request_id,
                                                     struct nvllm_error *error);
// 1: the request was unfinished and is aborted: its last event will be NVLLM_FINISH_ABORT, and so will
// that of every output that has not ended. The
// engine's thread delivers it in its next step or wait, and before it at most the one event that is
// under way. 0: the last event has been delivered or is being delivered, or the id is unknown.
NVLLM_API int nvllm_engine_abort(struct nvllm_engine *engine, uint64_t request_id);
// How many requests are unfinished, whatever their n: those whose last event's callback has not
// returned.
NVLLM_API int nvllm_engine_has_unfinished(struct nvllm_engine *engine);
// 1 until the request's last event is delivered; 0 in and after that event, and for an unknown id.
NVLLM_API int nvllm_engine_is_unfinished(struct nvllm_engine *engine, uint64_t request_id);
// From now on nvllm_engine_add_request takes no request; those that are unfinished run to their end.
NVLLM_API void nvllm_engine_drain(struct nvllm_engine *engine);
// Ends the nvllm_engine_wait that is under way, or else the next one.
NVLLM_API void nvllm_engine_wake(struct nvllm_engine *engine);
// The engine's tokenizer, borrowed; NULL with skip_tokenizer_init.
NVLLM_API const struct nvllm_tokenizer *nvllm_engine_tokenizer(const struct nvllm_engine *engine);
// The engine's chat template, borrowed: options.chat_template or the model's. NULL with the reason in
// `error` when the model has none or a broken one.
NVLLM_API const struct nvllm_chat_template *nvllm_engine_chat_template(
    const struct nvllm_engine *engine, struct nvllm_error *error);

// ---- engine: the thread that drives it ----

// Takes in what was added and aborted, runs one forward pass over what the scheduler picks, and
// delivers the events that follow. With nothing to do it returns NVLLM_OK at once. NVLLM_ERR_INVALID:
// called from an event, or while another thread drives the engine; nothing happened. Any other error
// is the engine's end: all requests finish with FINISH_ERROR.
NVLLM_API enum nvllm_status nvllm_engine_step(struct nvllm_engine *engine,
                                              struct nvllm_error *error);
// Takes in what was added and aborted, as a step does, and delivers the events of the aborted: then it
// returns at once. Else it returns as soon as a request is unfinished, nvllm_engine_wake is called, or
// `seconds` have passed; below 0: without end. Errors as step's.
NVLLM_API enum nvllm_status nvllm_engine_wait(struct nvllm_engine *engine, double seconds,
                                              struct nvllm_error *error);

struct nvllm_result {
    uint32_t index; // of the output
    struct nvllm_result *next; // the request's output with the next index; NULL: none
    enum nvllm_finish_reason finish_reason;
    int32_t stop_token_id; // -1: none
    char *stop_string; // NULL: none
    int32_t *prompt_token_ids; // [num_prompt_tokens]; none of a refused request
    size_t num_prompt_tokens;
    int32_t *token_ids; // [num_tokens]
    size_t num_tokens;
    // [text_len] NUL-terminated, the texts of all events. nvllm_tokenizer_decode differs where byte
    // tokens (byte fallback) are not UTF-8: it replaces each byte of the row, events have given the
    // characters before the fault.
    char *text;
    size_t text_len;
    uint32_t num_cached_tokens;
    int32_t num_top; // alternatives per token; -1: no logprobs were asked for
    struct nvllm_logprob *logprobs; // [num_tokens][1 + num_top]: the chosen one, then the best ones
    int32_t num_prompt_top; // the same of the prompt; -1: there are none
    // [num_prompt_tokens - 1][1 + num_prompt_top] as an event has them, of the first output alone; NULL:
    // not asked for, or the request ended before they were there
    struct nvllm_logprob *prompt_logprobs;
    struct nvllm_times times;
    struct nvllm_error error; // why, with NVLLM_FINISH_ERROR
};

// Runs a list to its end, others of the engine along with it. *results [num_requests], in input
// order and each the first of its request's n outputs, is the caller's (nvllm_results_free). on_event and user_data of the requests work as
// usual. A refused request has FINISH_ERROR and does not stop the others. One for which there is no
// room to wait is added when there is. NVLLM_ERR_INVALID: as step's. `interrupt` (may be NULL)
// is asked between steps and in place of the requests' own: once it is wanted, what is unfinished
// has FINISH_ABORT, and the results so far are returned with NVLLM_OK.
NVLLM_API enum nvllm_status nvllm_engine_generate(struct nvllm_engine *engine,
                                                  const struct nvllm_request *requests,
                                                  size_t num_requests,
                                                  struct nvllm_result **results,
                                                  const struct nvllm_interrupt *interrupt,
                                                  struct nvllm_error *error);
NVLLM_API void nvllm_results_free(struct nvllm_result *results, size_t num_results);

// Counters since the engine was created, by its last step or wait; num_requests_added and num_waiting
// are those of now. A request with n outputs counts as n requests. They belong together: requests that were added and have not finished are running
// or waiting. Any thread may ask. A struct of another size than the library's is not written.
struct nvllm_stats {
    size_t struct_size;
    uint64_t num_steps; // whose results are there; the tokens of these
    uint64_t num_prefill_tokens; // prompt (or recomputed) tokens run through the model
    uint64_t num_decode_tokens; // generated tokens run through the model
    uint64_t num_generated_tokens;
    uint64_t num_cached_tokens; // prompt tokens that the prefix cache saved
    uint64_t num_preemptions;
    uint64_t num_requests_added;
    uint64_t num_requests_finished; // aborted ones too
    uint32_t num_running; // now
    uint32_t num_waiting; // now; the preempted too
    uint32_t num_kv_blocks;
    uint32_t num_kv_blocks_used; // now, by running requests
    uint32_t num_kv_blocks_peak;
    uint32_t block_size; // tokens
    uint32_t max_model_len; // prompt + generated tokens of a request at most
    double load_seconds;
    double schedule_seconds; // scheduling and batch building
    double forward_seconds; // the model; on a GPU what the host waits for it
    double sample_seconds; // on a GPU enqueueing alone: it is waited for with the model
    double output_seconds; // detokenizing, stops, callbacks
    uint64_t peak_rss_bytes;
    // The memory plan, where the model runs: of a GPU its own memory.
    uint64_t weights_bytes;
    uint64_t workspace_bytes; // activations, batch, sampling
    uint64_t kv_cache_bytes;
};
#define NVLLM_STATS_INIT                                                                           \
    {                                                                                              \
        sizeof(struct nvllm_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0                                                                                \
    }
NVLLM_API void nvllm_engine_stats(struct nvllm_engine *engine, struct nvllm_stats *stats);

// What the engine would do with these options, without loading weights: architecture, shapes,
// parameters, memory plan. *json is the caller's (nvllm_free).
NVLLM_API enum nvllm_status nvllm_inspect(const struct nvllm_engine_options *options, char **json,
                                          struct nvllm_error *error);

#ifdef __cplusplus
}
#endif

#endif
