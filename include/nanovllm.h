/* nanovllm: the public C API, and the only installed header.
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
 * Threads: create, step, wait, generate, observe and destroy drive an engine. One thread at a time
 * may call them. Any thread may call an engine's other functions at any time between create and
 * destroy, also while another thread steps, and also from an event. Several engines may live in one
 * process. Tokenizers and chat templates are read-only after opening, so threads may share them.
 * The same holds for those that an engine owns.
 *
 * Errors: a function that can fail returns enum nvllm_status. If `error` is not NULL, it also
 * writes one sentence there. What the function hands out through other pointers is then NULL, 0 or
 * of length 0. The library never exits or prints. Of the environment it reads only where the
 * Hugging Face cache is (nvllm_model_find).
 *
 * Pointers are NULL only where this header allows it.
 *
 * Versions: from 1.0 on, a program runs with every later library of the same major version.
 * Initialise each struct that has a `struct_size` field with its _INIT macro. A later library
 * accepts the sizes of older headers: the missing fields take their defaults. A struct that the
 * library hands out by pointer (nvllm_event, nvllm_step_trace, nvllm_param) gets new fields at its
 * end alone. Structs in arrays and in other structs keep their size. doc/design.md has the rule.
 *
 * Text is UTF-8. Token ids are int32_t. */
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

// The version of the running library, such as "0.1.0", static. It may differ from the header's.
NVLLM_API const char *nvllm_version(void);
// sizeof a struct of this header, by name ("nvllm_event"), in the running library. 0: unknown name.
// Language bindings repeat the struct definitions; with this they can check that the sizes agree.
NVLLM_API size_t nvllm_struct_size(const char *name);

// ---- errors ----

enum nvllm_status {
    NVLLM_OK = 0,
    NVLLM_ERR_INVALID, // an argument or request that can never be served
    NVLLM_ERR_FORMAT, // a file or text that breaks its format's rules
    NVLLM_ERR_IO, // the operating system refused
    NVLLM_ERR_NOMEM, // not enough host or device memory
    NVLLM_ERR_CAPACITY, // too many requests wait: retry later; or the engine is draining
    NVLLM_ERR_UNSUPPORTED, // valid input that this version cannot run
    NVLLM_ERR_DEVICE, // the accelerator or a worker failed; the engine is lost
    NVLLM_ERR_INTERRUPTED, // the caller ended the call: see nvllm_interrupt
};

struct nvllm_error {
    enum nvllm_status status;
    char message[496]; // one sentence: a printable line of UTF-8, NUL-terminated
};

// ---- interrupts ----

// Lets the caller end a call that may take seconds. The called function asks `is_wanted` some
// hundred times a second (nvllm_engine_create: before each matrix), on the calling thread. An
// answer other than 0 ends the call with NVLLM_ERR_INTERRUPTED. If the pointer to this struct or
// the function is NULL, the call cannot be interrupted.
typedef int (*nvllm_is_wanted_fn)(void *user_data);
struct nvllm_interrupt {
    nvllm_is_wanted_fn is_wanted;
    void *user_data;
};

// ---- progress ----

// Told how much of a model is loaded: before each matrix, and at the end, when num_loaded is
// num_parameters. Called on the thread that loads, which may be another than the caller's. If the
// pointer to this struct or the function is NULL, nobody is told.
typedef void (*nvllm_on_loaded_fn)(uint64_t num_loaded, uint64_t num_parameters, void *user_data);
struct nvllm_load_progress {
    nvllm_on_loaded_fn on_loaded;
    void *user_data;
};

// Told how much of a model is downloaded: now and then while it is, on the thread that asked for
// the model. Bytes count what earlier, interrupted downloads left. If the pointer to this struct or
// the function is NULL, nobody is told.
struct nvllm_download {
    uint64_t num_bytes, total_bytes;
    uint32_t num_files, total_files; // num_files are done
};
typedef void (*nvllm_on_downloaded_fn)(const struct nvllm_download *download, void *user_data);
struct nvllm_download_progress {
    nvllm_on_downloaded_fn on_downloaded;
    void *user_data;
};

// ---- sampling parameters and engine options ----

// A field left at its UNSET value takes the model's default from generation_config.json. If the
// model gives none, it takes the library's default.
#define NVLLM_UNSET_FLOAT (-1.0e30f)
#define NVLLM_UNSET_INT INT32_MIN

enum { NVLLM_LOGPROBS_MAX = 20, NVLLM_RANKS_MAX = 64, NVLLM_ENGINES_MAX = 64 };
enum { NVLLM_LOGPROBS_ALL = -2 }; // prompt_logprobs: the whole vocabulary

struct nvllm_logit_bias {
    int32_t token_id;
    float bias; // [-100, 100], added to the logit; -INFINITY bans the token
};

// The tables of parameters. Struct fields, _INIT, setters, checks, --help, JSON and the bindings of
// Python come from them. To add a parameter, add a row, and code in the sampler if it reads it.
//
//     ROW(type, name, default, min, max, help): a number or a bool
//     ROW(type, name, entries min, entries max, string bytes max, help): a list
//     CHOICE(name, default, choices, help), TEXT(name, default, help): a const char *
//
// A list has two fields: `name`, borrowed until the request is added, and size_t num_`name`.
// src/engine/params/params.c completes `help`: the default follows, and a list's size comes first.
#define NVLLM_ABOVE_ZERO 1.1754943508222875e-38 // FLT_MIN as a minimum: the range is open
#define NVLLM_INT64_TOP 9223372036854775808.0 // 2^63: above every int64_t, and exact as a double
#define NVLLM_TYPE_INT int32_t
#define NVLLM_TYPE_INT64 int64_t
#define NVLLM_TYPE_FLOAT float
#define NVLLM_TYPE_DOUBLE double
#define NVLLM_TYPE_BOOL int32_t
#define NVLLM_TYPE_IDS int32_t
#define NVLLM_TYPE_STRINGS const char *
#define NVLLM_TYPE_BIASES struct nvllm_logit_bias
#define NVLLM_TYPE_JSON char

// clang-format off

// Read by the sampler. _INIT leaves them unset: the model's default counts, else the row's.
#define NVLLM_MODEL_PARAMS(ROW)                                                                    \
    ROW(FLOAT, temperature, 1, 0, 100,                                                             \
        "randomness of sampling, 0 is greedy")                                                     \
    ROW(FLOAT, top_p, 1, NVLLM_ABOVE_ZERO, 1,                                                      \
        "sample from the likeliest tokens that together have this probability, 1 is off")          \
    ROW(FLOAT, min_p, 0, 0, 1,                                                                     \
        "drop tokens less likely than this share of the likeliest one, 0 is off")                  \
    ROW(INT, top_k, 0, -1, INT32_MAX,                                                              \
        "sample from this many of the likeliest tokens, 0 or -1 is off")                           \
    ROW(FLOAT, repetition_penalty, 1, NVLLM_ABOVE_ZERO, 10,                                        \
        "above 1 discourages tokens of the prompt and the output, 1 is off")

// Read by the sampler; the model's configuration does not name them.
#define NVLLM_SAMPLER_PARAMS(ROW)                                                                  \
    ROW(FLOAT, presence_penalty, 0, -2, 2,                                                         \
        "subtracted from the logit of every token generated before")                               \
    ROW(FLOAT, frequency_penalty, 0, -2, 2,                                                        \
        "subtracted from a token's logit for each time it was generated")

// Read by the engine.
#define NVLLM_REQUEST_PARAMS(ROW)                                                                  \
    ROW(INT, max_tokens, 256, 1, INT32_MAX,                                                        \
        "largest number of tokens to generate, 2147483647 is as many as the context holds")        \
    ROW(INT, min_tokens, 0, 0, INT32_MAX,                                                          \
        "number of first tokens, at most max_tokens, among which EOS and stop tokens are banned "  \
        "and stop strings ignored")                                                                \
    ROW(BOOL, skip_special_tokens, 1, 0, 1,                                                        \
        "leave special tokens out of the text")                                                    \
    ROW(BOOL, include_stop_str_in_output, 0, 0, 1,                                                 \
        "keep the stop string, or the EOS or stop token, at the end of the text")                  \
    ROW(BOOL, ignore_eos, 0, 0, 1,                                                                 \
        "go on after the model's end-of-sequence token")                                           \
    ROW(INT, n, 1, 1, 1024,                                                                        \
        "outputs for each prompt, each sampled independently")                                     \
    ROW(INT, logprobs, -1, -1, NVLLM_LOGPROBS_MAX,                                                 \
        "report log-probabilities of the chosen token and of this many best ones, before "         \
        "temperature and penalties; if the answer has a form, among the tokens that the form "     \
        "allows; -1 is none")                                                                      \
    ROW(INT, prompt_logprobs, -1, NVLLM_LOGPROBS_ALL, NVLLM_LOGPROBS_MAX,                          \
        "report log-probabilities of each token of the prompt and of this many best ones in its "  \
        "place, -1 is none, -2 the whole vocabulary; the prompt is then computed without cached "  \
        "prefixes")                                                                                \
    ROW(BOOL, echo, 0, 0, 1,                                                                       \
        "begin the text with the prompt's")                                                        \
    ROW(INT, priority, 0, INT32_MIN, INT32_MAX,                                                    \
        "requests with a lower number run first and are preempted last, equal ones in order of "   \
        "arrival")                                                                                 \
    ROW(INT64, seed, -1, -1, NVLLM_INT64_TOP,                                                      \
        "seed of the request's sampling, output i of n uses seed + i, -1 derives it from the "     \
        "engine's seed and the request's number")

// bad_words has vLLM's rules. A word stands for its tokens at the start of a text, and for those
// after a space, if these are as many and begin with another token. A word of several tokens bans
// its last token, in places where the output ends with all the others.
#define NVLLM_LIST_PARAMS(ROW)                                                                     \
    ROW(IDS, stop_token_ids, 0, 1024, 0,                                                           \
        "that end the output; default none")                                                       \
    ROW(STRINGS, stop, 0, 16, 1024,                                                                \
        "that end the output; default none")                                                       \
    ROW(IDS, allowed_token_ids, 1, 262144, 0,                                                      \
        "that are allowed, all others are banned, EOS too; default: nothing is banned")            \
    ROW(STRINGS, bad_words, 0, 1024, 256,                                                          \
        "that are never generated, encoded alone or after a space; default none")                  \
    ROW(IDS, logprob_token_ids, 1, 20, 0,                                                          \
        "that logprobs reports in place of the best ones, in this order; default none")            \
    ROW(BIASES, logit_bias, 0, 1024, 0,                                                            \
        "to numbers from -100 to 100 added to their logits, \"-inf\" bans; default none")          \
    ROW(JSON, structured_outputs, 1, 1048576, 0,                                                   \
        "with the form that the output must have: one of json, json_object, regex, choice, "       \
        "grammar and structural_tag; default none")

// Sizes hold for each engine of data_parallel_size, `threads` for all of them together. A request
// beyond max_num_waiting or max_waiting_tokens is refused with NVLLM_ERR_CAPACITY, unless it would
// wait alone. On a CPU the KV cache holds at least one sequence of max_model_len. cache_dir is
// created when needed, its parent must exist; NULL: nothing is kept. Of
// distributed_executor_backend, "auto" is "mp" here: only the command takes it for "mpi".
#define NVLLM_ENGINE_OPTIONS(ROW, CHOICE, TEXT)                                                    \
    TEXT(model, NULL,                                                                              \
        "folder with config.json, *.safetensors and tokenizer.json, a GGUF file, or a model by "   \
        "its name on Hugging Face; required")                                                      \
    CHOICE(device, "auto", "auto|cuda|cuda:N|cpu",                                                 \
        "device that runs the model, auto is cuda if there is a usable GPU, else cpu, cuda:N is "  \
        "GPU N, cuda:N,M,... are the GPUs of a host's ranks")                                      \
    CHOICE(dtype, "auto", "auto|bfloat16|float32",                                                 \
        "number format of the weights, auto is bfloat16, but a quantized checkpoint's stay "       \
        "packed where the device can")                                                             \
    CHOICE(quantization, "none", "none|int8|int4",                                                 \
        "quantize the weights while loading, CPU only")                                            \
    CHOICE(load_format, "auto", "auto|dummy",                                                      \
        "dummy makes random weights and reads config.json only")                                   \
    CHOICE(schedule, "mixed", "mixed|prefill-first",                                               \
        "mixed runs prompts and decodes in one step, prefill-first runs prompts in steps of their "\
        "own first")                                                                               \
    CHOICE(cpu_isa, "auto",                                                                        \
        "auto|scalar|avx2|avx-vnni|avx512|avx512-vnni|avx512-bf16|amx|neon|neon-dotprod",          \
        "newest instruction set of the CPU kernels, auto takes the fastest kernels of all that "   \
        "the processor has")                                                                       \
    ROW(INT, threads, 0, 0, 1024,                                                                  \
        "CPU threads, 0 is one for each core this process may use")                                \
    ROW(INT, max_num_seqs, 256, 1, 65536,                                                          \
        "largest number of sequences that run at once, capped by max_num_batched_tokens")          \
    ROW(INT, max_num_batched_tokens, 2048, 1, 1048576,                                             \
        "largest number of tokens in one step")                                                    \
    ROW(INT, max_num_waiting, 0, 0, INT32_MAX,                                                     \
        "largest number of requests that wait for their first step, each output of n counts, 0 is "\
        "no limit")                                                                                \
    ROW(INT64, max_waiting_tokens, 0, 0, NVLLM_INT64_TOP,                                          \
        "largest number of prompt tokens of the waiting requests, a single one may always wait, 0 "\
        "is no limit")                                                                             \
    ROW(INT, max_model_len, 0, 0, 16777216,                                                        \
        "largest number of tokens in prompt and output together, 0 is 4096, or the model's "       \
        "maximum if that is less")                                                                 \
    ROW(INT, block_size, 16, 16, 4096,                                                             \
        "tokens per KV cache block, a multiple of 16; the prefix cache finds whole blocks only, "  \
        "so small ones find more")                                                                 \
    ROW(INT, num_kvcache_blocks, 0, 0, 134217728,                                                  \
        "number of KV cache blocks, 0 is as many as kv_cache_gib holds")                           \
    ROW(DOUBLE, kv_cache_gib, 0, 0, 65536,                                                         \
        "size of the KV cache in GiB, 0 is the rest of gpu_memory_utilization on a GPU, on a CPU " \
        "a quarter of the free memory but at most 4")                                              \
    ROW(BOOL, enable_prefix_caching, 1, 0, 1,                                                      \
        "reuse the keys and values of prompts that begin alike")                                   \
    ROW(INT, num_state_snapshots, 64, 0, 65536,                                                    \
        "for a model with recurrent layers: states that the prefix cache keeps, at the end of a "  \
        "prompt and at multiples of state_snapshot_tokens, 0 is no prefix cache")                  \
    ROW(INT, state_snapshot_tokens, 1024, 16, 16777216,                                            \
        "for a model with recurrent layers: distance of the states that the prefix cache keeps "   \
        "of a prompt, rounded up to a multiple of block_size")                                     \
    ROW(BOOL, skip_tokenizer_init, 0, 0, 1,                                                        \
        "run without tokenizer.json, prompts must be token ids")                                   \
    ROW(INT64, seed, 0, 0, NVLLM_INT64_TOP,                                                        \
        "seed for the sampling of requests that set no seed of their own")                         \
    TEXT(chat_template, NULL,                                                                      \
        "file with the Jinja source of a chat template; default: the model's own")                 \
    ROW(DOUBLE, gpu_memory_utilization, 0.9, 0.01, 1,                                              \
        "share of the GPU's memory to use, the KV cache takes all that the rest leaves")           \
    ROW(BOOL, enforce_eager, 0, 0, 1,                                                              \
        "run every step op by op, without CUDA graphs")                                            \
    CHOICE(async_scheduling, "auto", "auto|on|off",                                                \
        "prepare the next step while one runs, auto is on for a GPU, off for a CPU")               \
    TEXT(cache_dir, NULL,                                                                          \
        "folder that keeps the GPU's kernel timings between runs; default of the command: the "    \
        "user's cache folder")                                                                     \
    CHOICE(kv_cache_dtype, "auto", "auto|bfloat16|float32|int8|fp8",                               \
        "number format of keys and values, auto is bfloat16, float32 is CPU only, int8 and fp8 "   \
        "take half of the memory")                                                                 \
    ROW(INT, tensor_parallel_size, 1, 1, NVLLM_RANKS_MAX,                                          \
        "processes that share each layer of the model")                                            \
    ROW(INT, data_parallel_size, 1, 1, NVLLM_ENGINES_MAX,                                          \
        "engines that share the requests, each with its own copy of the model and its own "        \
        "tensor_parallel_size processes")                                                          \
    CHOICE(distributed_executor_backend, "auto", "auto|mp|mpi",                                    \
        "who starts the processes, mp is the engine, mpi is mpirun, auto is mpirun if it has "     \
        "started this program")                                                                    \
    TEXT(worker_program, "nanovllm",                                                               \
        "program that the worker processes run, nanovllm of this version, a path or a name in "    \
        "PATH; default of the command: itself")                                                    \
    CHOICE(comm, "auto", "auto|p2p|nccl",                                                          \
        "how the GPUs of tensor_parallel_size exchange data, auto is p2p if they reach each "      \
        "other's memory, else nccl")                                                               \
    CHOICE(numa, "auto", "auto|off",                                                               \
        "auto spreads weights and KV cache over the NUMA nodes of the CPUs")                       \
    TEXT(revision, NULL, "branch, tag or commit of a model by its name; default: main")            \
    TEXT(quant, NULL,                                                                              \
        "GGUF file of a model by its name, such as Q4_K_M; default: safetensors, else Q4_K_M or "  \
        "Q8_0")                                                                                    \
    ROW(BOOL, download, 0, 0, 1,                                                                   \
        "download a model by its name if the Hugging Face cache lacks it")                         \
    CHOICE(drafts, "auto", "auto|off|N",                                                           \
        "guess tokens from the text so far and verify them together, which changes no token but "  \
        "takes fewer steps: N at most, 1 to 15, or auto, as many as pay")                          \
    TEXT(speculative_config, NULL,                                                                 \
        "vLLM's JSON object for the same, with method ngram; default: drafts decides")             \
    CHOICE(target_itl, "off", "auto|off|MS",                                                       \
        "aims at so many milliseconds between two tokens while prompts run, which go through in "  \
        "parts: MS, or auto, 40 ms but a long prompt should take at most 15 % longer; the "        \
        "default of serve is auto")                                                                \
    ROW(BOOL, full_warm_up, 0, 0, 1,                                                               \
        "load all kernels of the GPU and record all steps before the engine is ready, not beside " \
        "the first requests; the default of bench is true")

// clang-format on

#define NVLLM_FIELD_(type, name, ...) NVLLM_TYPE_##type name;
#define NVLLM_LIST_FIELD_(type, name, ...)                                                         \
    NVLLM_TYPE_##type const *name;                                                                 \
    size_t num_##name;
#define NVLLM_STRING_FIELD_(name, ...) const char *name;
#define NVLLM_UNSET_INIT_(type, ...) NVLLM_UNSET_##type,
#define NVLLM_NUMBER_INIT_(type, name, value, ...) value,
#define NVLLM_LIST_INIT_(...) NULL, 0,
#define NVLLM_STRING_INIT_(name, value, ...) value,

// float temperature; ... int32_t max_tokens; ... const int32_t *stop_token_ids;
// size_t num_stop_token_ids; const char *const *stop; size_t num_stop; ...
struct nvllm_sampling_params {
    size_t struct_size;
    NVLLM_MODEL_PARAMS(NVLLM_FIELD_)
    NVLLM_SAMPLER_PARAMS(NVLLM_FIELD_)
    NVLLM_REQUEST_PARAMS(NVLLM_FIELD_)
    NVLLM_LIST_PARAMS(NVLLM_LIST_FIELD_)
    // Memory of the lists that nvllm_sampling_params_set made. It moves with the struct. Set it to
    // NULL in a copy: the copy then borrows the lists, and may set its own.
    void *owned;
};

#define NVLLM_SAMPLING_PARAMS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct nvllm_sampling_params),                                                      \
            NVLLM_MODEL_PARAMS(NVLLM_UNSET_INIT_) NVLLM_SAMPLER_PARAMS(NVLLM_NUMBER_INIT_)         \
                NVLLM_REQUEST_PARAMS(NVLLM_NUMBER_INIT_) NVLLM_LIST_PARAMS(NVLLM_LIST_INIT_) NULL  \
    }

// const char *model; ... int32_t threads; ... A NULL string other than `model` means its default.
struct nvllm_engine_options {
    size_t struct_size;
    NVLLM_ENGINE_OPTIONS(NVLLM_FIELD_, NVLLM_STRING_FIELD_, NVLLM_STRING_FIELD_)
    // Ends nvllm_engine_create early; NULL: it cannot be interrupted. Not in the parameter table.
    const struct nvllm_interrupt *interrupt;
    // Of nvllm_engine_create; NULL: nobody is told. Not in the parameter table.
    const struct nvllm_load_progress *load_progress;
    // Of a download; NULL: nobody is told. Not in the parameter table.
    const struct nvllm_download_progress *download_progress;
};

#define NVLLM_ENGINE_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct nvllm_engine_options),                                                       \
            NVLLM_ENGINE_OPTIONS(NVLLM_NUMBER_INIT_, NVLLM_STRING_INIT_, NVLLM_STRING_INIT_) NULL, \
            NULL, NULL                                                                             \
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
    NVLLM_PARAM_JSON, // JSON object, as text
};

struct nvllm_param {
    const char *name; // as in JSON: "max_tokens"
    enum nvllm_param_type type;
    size_t offset; // of the field in its struct, bytes
    double min, max; // numbers: the closed range of accepted values
    // strings: "auto|cpu"; N in "cuda:N" is a number, or several: "cuda:0,2"; NULL: any
    const char *choices;
    const char *help; // one line, lower case, with unit and default
};

// The i-th parameter of each struct, static; NULL past the end.
NVLLM_API const struct nvllm_param *nvllm_sampling_param(size_t index);
NVLLM_API const struct nvllm_param *nvllm_engine_option(size_t index);
// Its default as its setter takes it: "256", "true", "auto". NULL: an empty list, a NULL string, or
// past the end. Where _INIT leaves the field unset: what holds if the model has no default either.
NVLLM_API const char *nvllm_sampling_param_default(size_t index);
NVLLM_API const char *nvllm_engine_option_default(size_t index);

// Sets one field by name from JSON text ("0.7", "true", "[\"a\", \"b\"]"); a bare word is taken as
// a string. For an unknown name the error suggests the nearest. Lists are copied into
// params->owned.
NVLLM_API enum nvllm_status nvllm_sampling_params_set(struct nvllm_sampling_params *params,
                                                      const char *name, const char *value,
                                                      struct nvllm_error *error);
// Frees the lists that nvllm_sampling_params_set allocated and resets the fields to INIT. NULL is
// fine.
NVLLM_API void nvllm_sampling_params_fini(struct nvllm_sampling_params *params);
// Sets one option by name from JSON text. A string option is taken as it is, without quotes, and
// borrows `value`. The word null resets any option to its default.
NVLLM_API enum nvllm_status nvllm_engine_options_set(struct nvllm_engine_options *options,
                                                     const char *name, const char *value,
                                                     struct nvllm_error *error);

// ---- models by name ----

// The place of options->model: *path is the caller's (nvllm_free). A path is its own place. A name
// such as "Qwen/Qwen3-0.6B" is looked for in the Hugging Face cache, whose place HF_HUB_CACHE,
// HF_HOME or XDG_CACHE_HOME gives; options->revision and options->quant choose what it is there. A
// model that is not there is downloaded if options->download is 1, else it is NVLLM_ERR_IO. Of
// the options only these, load_format, `interrupt` and `download_progress` are used. With
// texts_only, or dummy weights, the weights may be missing. nvllm_engine_create and
// nvllm_inspect call this themselves.
NVLLM_API enum nvllm_status nvllm_model_find(const struct nvllm_engine_options *options,
                                             int texts_only, char **path,
                                             struct nvllm_error *error);

// ---- tokenizer ----

struct nvllm_tokenizer;

// *out is the caller's (nvllm_tokenizer_close). `model` is a checkpoint folder, a GGUF file, the
// path of a tokenizer.json, or the name of a model in the Hugging Face cache. Added tokens that
// tokenizer_config.json beside it lists ("added_tokens_decoder") are part of the tokenizer.
// NVLLM_ERR_IO, NVLLM_ERR_FORMAT: a file is missing or broken. NVLLM_ERR_UNSUPPORTED: a kind of
// tokenizer that this version does not have.
NVLLM_API enum nvllm_status nvllm_tokenizer_open(struct nvllm_tokenizer **out, const char *model,
                                                 struct nvllm_error *error);
NVLLM_API void nvllm_tokenizer_close(struct nvllm_tokenizer *tokenizer); // NULL is fine
// *ids [*num_ids] is the caller's (nvllm_free). `text` may be NULL if it is empty. Bytes that are
// no UTF-8 count as U+FFFD. Special tokens written in the text are recognised.
// With add_special_tokens the tokenizer's post-processor adds its tokens too, such as a BOS token.
// NVLLM_ERR_INVALID: the text is larger than 682 MiB, or the tokenizer's patterns backtrack for
// more steps than a multiple of its length. `interrupt` may be NULL.
NVLLM_API enum nvllm_status nvllm_tokenizer_encode(const struct nvllm_tokenizer *tokenizer,
                                                   const char *text, size_t text_len,
                                                   int add_special_tokens,
                                                   const struct nvllm_interrupt *interrupt,
                                                   int32_t **ids, size_t *num_ids,
                                                   struct nvllm_error *error);
enum nvllm_decode_flags {
    NVLLM_DECODE_SKIP_SPECIAL = 1, // special tokens add no text
    // Ids without a token add no text; without this flag they are an error. Models whose vocabulary
    // is padded can generate such ids.
    NVLLM_DECODE_SKIP_UNKNOWN = 2,
};
// *text [*text_len], NUL-terminated, is the caller's (nvllm_free). Bytes that are no UTF-8, such as
// half a character, become U+FFFD. `flags` is 0 or a sum of enum nvllm_decode_flags.
// NVLLM_ERR_INVALID: an id has no token.
NVLLM_API enum nvllm_status nvllm_tokenizer_decode(const struct nvllm_tokenizer *tokenizer,
                                                   const int32_t *ids, size_t num_ids, int flags,
                                                   char **text, size_t *text_len,
                                                   struct nvllm_error *error);
// Frees memory that a function of this header gave to the caller. NULL is fine.
NVLLM_API void nvllm_free(void *p);

// ---- chat templates ----

struct nvllm_chat_template; // read-only after opening and may be shared by threads

// Opening and rendering a template takes no more stack than this. Its nesting is limited to 200
// levels, its recursion to 600 calls, and the JSON that it reads to 64 levels.
enum { NVLLM_CHAT_STACK_BYTES = 512 * 1024 };

// Opens the chat template of a checkpoint folder, or of the Jinja file `path`. *out is the caller's
// (nvllm_chat_template_close).
// Template: chat_template.jinja and additional_chat_templates/NAME.jinja, else chat_template in
// tokenizer_config.json (a string, or a list of named ones), else the one in chat_template.json.
// Chats with tools use the template "tool_use" if there is one, all others use "default". If one of
// the two is broken, only the chats that need it are refused.
// Special tokens (bos_token and so on): from tokenizer_config.json. special_tokens_map.json adds
// those that are missing there. It overrides a tokenizer_config.json of the old form, which has no
// added_tokens_decoder.
// `model` is a folder, or the name of a model in the Hugging Face cache.
// `path` (NULL: none) is a file of Jinja source that replaces the folder's template. `model` may
// then be NULL; in that case only chat_template_kwargs can give the template special tokens.
// NVLLM_ERR_INVALID: the folder has no template.
NVLLM_API enum nvllm_status nvllm_chat_template_open(struct nvllm_chat_template **out,
                                                     const char *model, const char *path,
                                                     struct nvllm_error *error);
NVLLM_API void nvllm_chat_template_close(struct nvllm_chat_template *chat_template); // NULL is fine
// Renders the prompt of a chat. `chat` [chat_len] is JSON: a list of messages or an object
//   {"messages": [{"role": "user", "content": "Hi"}, ...],   at least one;
//                                                            content: a string or a list of text
//                                                            parts {"type": "text", "text": ...};
//                                                            an assistant's may be null or left out
//    "tools": [...], "documents": [...],                     optional, as transformers takes them
//    "add_generation_prompt": true,                          default: true
//    "continue_final_message": false,                        default: false; excludes the one above
//    "chat_template_kwargs": {"enable_thinking": false},     optional, further variables
//    "now": "2026-01-02T03:04:05"}                           optional, for strftime_now in place of
//                                                            the local time; ISO 8601
// Any other member is an error. Messages may have any further fields that a template reads.
// *text [*text_len], NUL-terminated, is the caller's (nvllm_free). Encode it without
// add_special_tokens, because a template writes its own BOS. `interrupt` may be NULL.
// Tool calls, as in vLLM: arguments that are JSON text of an object become that object, missing
// ones become {}. tool_calls that are null or empty are left out.
// Content: if the template takes only strings, text parts are joined by newlines. If it fails on an
// assistant's missing content, or prints None for it, the content becomes null, or if null fails
// "". If it does not print the role developer, such messages get the role system. If it does not
// print two messages of the system, those at the beginning become one, joined by an empty line.
// chat_template_kwargs override special tokens of the same name. They may not contain messages,
// tools, documents, add_generation_prompt or continue_final_message.
// JSON: integers of up to 4300 digits print as they are written. Templates can compare those beyond
// 64 bits, but not calculate with them.
// NVLLM_ERR_FORMAT: not JSON (NaN and Infinity are not JSON); a duplicate key, because two readers
// may take different values; a real number beyond the range of a double.
// NVLLM_ERR_UNSUPPORTED: tools that the template does not show, or documents that it never names;
// more than 64 levels of nesting; a part of a content that is no text; or so many small values that
// their tree would take more than 16 MiB + 40 bytes per byte of `chat`. This is checked before the
// tree is allocated.
// NVLLM_ERR_INVALID: the template raised an error (the sentence names template and line); it left
// out a message whose role is neither user nor assistant, so the model would not see the text (a
// first message of the system may be shown in some turns only), or it never shows an assistant's
// tool_calls; or it took more steps than allowed:
// 34 million, fewer for a small chat, so that each render ends after seconds.
// Memory: rendering takes at most 64 MiB + 16 bytes per byte of `chat`.
NVLLM_API enum nvllm_status nvllm_chat_template_render(
    const struct nvllm_chat_template *chat_template, const char *chat, size_t chat_len,
    const struct nvllm_interrupt *interrupt, char **text, size_t *text_len,
    struct nvllm_error *error);
// Renders the template with variables of the caller's own. The members of the JSON object
// `variables` [variables_len] become the template's variables as they are: nothing is added (no
// special tokens), checked or changed. Only the member "now" is not a variable: it sets the time,
// as above.
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
    NVLLM_FINISH_ERROR, // refused (nvllm_engine_generate only), no logit above -inf, device failed
};
// "stop", "length", ...: static. "unknown" for any other number.
NVLLM_API const char *nvllm_finish_reason_name(enum nvllm_finish_reason reason);

struct nvllm_logprob {
    int32_t token_id; // -1: fewer tokens than were asked for are possible; the list ends before it
    // Natural logarithm, of the model's distribution before temperature, penalties and bans. With
    // structured_outputs it is that of the tokens that are allowed.
    float logprob;
};

// When things happened to a request: seconds of CLOCK_MONOTONIC, 0 = not yet.
struct nvllm_times {
    double arrival; // nvllm_engine_add_request was called
    double first_scheduled; // its first step began
    double first_token, last_token; // the host had the results of their steps
};

// News of one output of a request: the tokens that a step generated, the output's end, or both.
// With echo an event without tokens, whose text is the prompt's, comes before the first. Everything
// is borrowed and valid during the callback only.
//
// A step may bring several tokens. They count in order, as if each had come alone: the first that
// ends the output (EOS, a stop token, a complete stop string, max_tokens) is the last one. Those
// behind it are dropped: they are in no list, no count and no text.
struct nvllm_event {
    uint64_t request_id;
    uint32_t index; // of the output, below n
    uint32_t num_outputs_left; // outputs of the request that end in later events; 0: its last event
    // [num_tokens] the new tokens, in order. With finish_event_only: all of the output.
    const int32_t *token_ids;
    // 0: none (an abort, text held back until the end, an echo). The sum over an output's events is
    // num_generated_tokens.
    uint32_t num_tokens;
    // [text_len] new text in whole characters, NUL-terminated. Empty when the tokens add none yet:
    // half a character, or what may become a stop string, is held back.
    const char *text;
    size_t text_len; // bytes
    // [num_tokens] bytes of `text` that came with the first i + 1 tokens; the last is text_len.
    // NULL without tokens, and with finish_event_only.
    const uint32_t *text_ends;
    // [num_tokens][1 + num_top]: each token's own, then the best ones in its place, best first, or
    // those of logprob_token_ids. NULL: not asked for, or no tokens.
    const struct nvllm_logprob *logprobs;
    size_t num_top;
    // [num_prompt_tokens - 1][1 + num_prompt_top]: row i has prompt token i + 1, then the best ones
    // in its place. Token 0 has no row, because nothing predicts it. NULL: not asked for, or not
    // there yet.
    const struct nvllm_logprob *prompt_logprobs;
    size_t num_prompt_top; // with NVLLM_LOGPROBS_ALL the size of the vocabulary
    enum nvllm_finish_reason finish_reason; // NVLLM_FINISH_NONE: more to come
    const char *error; // why, with NVLLM_FINISH_ERROR; else NULL
    int32_t stop_token_id; // which EOS or stop token ended it; -1: none
    const char *stop_string; // which stop string ended it; NULL: none
    const int32_t *prompt_token_ids; // [num_prompt_tokens]
    uint32_t num_prompt_tokens;
    // Prompt tokens found in the prefix cache at the first scheduling; the same for all outputs,
    // which share the prompt.
    uint32_t num_cached_tokens;
    const int32_t *generated_token_ids; // [num_generated_tokens] of this output, all so far
    uint32_t num_generated_tokens;
    uint32_t num_preemptions; // how often it lost its KV blocks so far
    struct nvllm_times times;
    // [num_dimensions] the vector of a request with pooling, with NVLLM_FINISH_STOP; else NULL.
    const float *embedding;
    uint32_t num_dimensions;
};

// Called on the engine's thread, from nvllm_engine_step, _wait, _generate or _destroy. With
// data_parallel_size above 1 other threads call it, while such a call waits. Events never nest, and
// come one at a time. The callback may call every function that any thread may call. The next step
// takes in the requests that it adds or aborts. It may not drive the engine: step, wait, generate
// and observe then return NVLLM_ERR_INVALID, and destroy does nothing.
typedef void (*nvllm_event_fn)(const struct nvllm_event *event, void *user_data);

// How hidden states become a vector.
enum nvllm_pooling_kind {
    // As 1_Pooling/config.json of the model says; without one, the last token.
    NVLLM_POOLING_MODEL = 0,
    NVLLM_POOLING_LAST, // the last token's
    NVLLM_POOLING_MEAN, // the mean over all tokens; they are computed without cached prefixes
};

// Asks for a vector in place of generated text: the prompt's hidden states behind the model's final
// norm, pooled, in float32.
struct nvllm_pooling {
    size_t struct_size;
    enum nvllm_pooling_kind kind;
    // The vector is scaled to length 1: 1 yes, 0 no, -1 (_INIT) as modules.json of the model says;
    // without one, yes.
    int32_t normalize;
    // Only so many first numbers are kept, before the vector is scaled; 0: all.
    uint32_t dimensions;
    // The name of a text in config_sentence_transformers.json of the model, such as "query", which
    // goes before the prompt. NULL: none.
    const char *prompt_name;
};
#define NVLLM_POOLING_INIT                                                                         \
    { sizeof(struct nvllm_pooling), NVLLM_POOLING_MODEL, -1, 0, NULL }

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
    // Requests share cached prefixes only with requests of the same salt. NULL: the common salt.
    const char *cache_salt;
    nvllm_event_fn on_event; // NULL: none
    void *user_data;
    // 1: on_event is called once for each output, at its end, with an empty text and no logprobs.
    // For programs that want only token_ids, or whose callbacks cost more than a token.
    int32_t finish_event_only;
    // 1: the text keeps a final EOS or stop token even without include_stop_str_in_output. With
    // neither stop strings nor skip_special_tokens, the text is then that of all token_ids.
    int32_t keep_stop_token;
    // Ends nvllm_engine_add_request while it renders or encodes the prompt; NULL: cannot be
    // interrupted.
    const struct nvllm_interrupt *interrupt;
    // [num_call_prefixes] Forces each output to be a tool call: behind its reasoning, if the model
    // reasons, come the tokens of one of these texts, then a JSON object, then what the model
    // likes. At most 1024 texts of 1 to 2048 bytes, without white space at their end, and no
    // structured_outputs beside them. None (default): the output is the model's. Copied.
    const char *const *call_prefixes;
    size_t num_call_prefixes;
    // 1: structured_outputs begin behind the model's reasoning, if the output begins with some. So
    // it is for a chat; here it is for a prompt that was made of one.
    int32_t may_reason;
    // NULL: text is generated. Otherwise the request has one event, which has the vector; of
    // `sampling` only `priority` is read, and n, echo, prompt_logprobs and structured_outputs are
    // refused. The prompt may have max_model_len tokens. Copied.
    const struct nvllm_pooling *pooling;
};

#define NVLLM_REQUEST_INIT                                                                         \
    {                                                                                              \
        sizeof(struct nvllm_request), NULL, 0, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, 0,     \
            NULL, NULL, 0, 0, NULL                                                                 \
    }

// ---- engine ----

struct nvllm_engine;

// Loads a model and makes its engine. *out is the caller's (nvllm_engine_destroy). `options` and
// what it points to need only last for the call. It takes as long as reading all weights; a GPU is
// warmed up besides. NVLLM_ERR_INVALID: an option out of its range, or options that exclude each
// other.
// NVLLM_ERR_IO, NVLLM_ERR_FORMAT: a file of the model is missing or broken. NVLLM_ERR_UNSUPPORTED:
// the model, or an option with it, is more than this version runs. NVLLM_ERR_NOMEM: weights,
// workspace and KV cache do not fit. NVLLM_ERR_DEVICE: the GPU or a worker process failed.
// NVLLM_ERR_INTERRUPTED: options->interrupt.
NVLLM_API enum nvllm_status nvllm_engine_create(struct nvllm_engine **out,
                                                const struct nvllm_engine_options *options,
                                                struct nvllm_error *error);
// First ends unfinished requests with NVLLM_FINISH_ABORT. NULL is fine. No other thread may be in a
// function of the engine, or call one afterwards. From an event it does nothing: destroy the engine
// after the call that delivers the event.
// Destroy an engine with a GPU before the process ends by exit() or main's return, where the driver
// is shut down: behind a start a thread of the engine may still be in it. destroy waits for what
// the driver runs, without a deadline, because that may use memory which destroy frees next.
NVLLM_API void nvllm_engine_destroy(struct nvllm_engine *engine);

// ---- engine: any thread ----

// Copies everything in `request`, encodes its prompt and allocates all memory that it will need, on
// the caller's thread. The next step takes it in. Requests run in the order of their priorities,
// equal ones in the order of their ids. *request_id (NULL: not wanted) is never 0. If another
// thread steps, the request's first events may come before this call returns.
// NVLLM_ERR_INVALID: the request can never run: it is empty, too long for max_model_len or for the
// whole KV cache, or has a bad parameter or token id. NVLLM_ERR_FORMAT, NVLLM_ERR_UNSUPPORTED: of
// `chat` as in nvllm_chat_template_render, or of structured_outputs. NVLLM_ERR_NOMEM.
// NVLLM_ERR_INTERRUPTED: request->interrupt. NVLLM_ERR_CAPACITY: too many requests wait
// (max_num_waiting, max_waiting_tokens), or the engine is draining. NVLLM_ERR_DEVICE: the engine
// has failed.
NVLLM_API enum nvllm_status nvllm_engine_add_request(struct nvllm_engine *engine,
                                                     const struct nvllm_request *request,
                                                     uint64_t *request_id,
                                                     struct nvllm_error *error);
// Whether there is room for a request now, before one is made. NVLLM_ERR_CAPACITY,
// NVLLM_ERR_DEVICE: nvllm_engine_add_request would refuse any. NVLLM_OK: it would take a small one.
NVLLM_API enum nvllm_status nvllm_engine_check_open(struct nvllm_engine *engine,
                                                    struct nvllm_error *error);
// 1: the request was unfinished and is aborted. Each output that has not ended gets a last event
// with NVLLM_FINISH_ABORT. The engine's thread delivers these in its next step or wait. Before
// that, at most the one event that is under way is delivered. 0: the request's last event has been
// delivered or is being delivered, or the id is unknown.
NVLLM_API int nvllm_engine_abort(struct nvllm_engine *engine, uint64_t request_id);
// The number of unfinished requests; a request with n outputs counts once. A request is finished
// when the callback of its last event returns.
NVLLM_API int nvllm_engine_has_unfinished(struct nvllm_engine *engine);
// 1 until the request's last event is delivered; 0 in and after that event, and for an unknown id.
NVLLM_API int nvllm_engine_is_unfinished(struct nvllm_engine *engine, uint64_t request_id);
// From now on nvllm_engine_add_request refuses all requests. Unfinished ones run to their end.
NVLLM_API void nvllm_engine_drain(struct nvllm_engine *engine);
// Ends the nvllm_engine_wait that is under way, or else the next one.
NVLLM_API void nvllm_engine_wake(struct nvllm_engine *engine);
// The engine's tokenizer, borrowed; NULL with skip_tokenizer_init.
NVLLM_API const struct nvllm_tokenizer *nvllm_engine_tokenizer(const struct nvllm_engine *engine);
// What a request gets that sets no sampling parameter. `params` is overwritten; it owns no lists.
// A struct whose struct_size is not the library's is not written.
NVLLM_API void nvllm_engine_default_sampling(const struct nvllm_engine *engine,
                                             struct nvllm_sampling_params *params);
// The engine's chat template, borrowed: options.chat_template or the model's. NULL if the model has
// none or a broken one; `error` then has the reason.
NVLLM_API const struct nvllm_chat_template *nvllm_engine_chat_template(
    const struct nvllm_engine *engine, struct nvllm_error *error);

// The text that config_sentence_transformers.json of the model has under this name, borrowed; NULL:
// none. nvllm_pooling.prompt_name puts it before a prompt.
NVLLM_API const char *nvllm_engine_prompt_text(const struct nvllm_engine *engine, const char *name);
// 1: the model says how it makes embeddings (modules.json, 1_Pooling/config.json). 0: it does not.
NVLLM_API int nvllm_engine_is_embedder(const struct nvllm_engine *engine);
// The chat that asks a model whether a document answers a query, with "yes" or "no" for an answer,
// in the form of Qwen3-Reranker. *chat [*chat_len] is the caller's (nvllm_free); it is for
// nvllm_request.chat. The score is the probability of "yes" against "no" as the first token:
// ask for logprobs 0 with both in logprob_token_ids. instruction (NULL: Qwen3-Reranker's, of a web
// search) says what the query is for. The texts are UTF-8.
NVLLM_API enum nvllm_status nvllm_score_chat(const char *query, const char *document,
                                             const char *instruction, char **chat, size_t *chat_len,
                                             struct nvllm_error *error);

// ---- engine: the thread that drives it ----

// Takes in added and aborted requests, runs one forward pass over the tokens that the scheduler
// picks, and delivers the events of the results. With nothing to do it returns NVLLM_OK at once.
// With data_parallel_size above 1 the engines step by themselves, and it returns when one of them
// has. NVLLM_ERR_INVALID: called from an event, or while another thread drives the engine; nothing
// happened. Any other error ends the engine: all requests finish with NVLLM_FINISH_ERROR.
NVLLM_API enum nvllm_status nvllm_engine_step(struct nvllm_engine *engine,
                                              struct nvllm_error *error);
// Waits until a request is unfinished, nvllm_engine_wake is called, or `seconds` have passed; below
// 0: no time limit. It takes in added and aborted requests, as a step does. If it delivers events
// of aborted ones, it returns at once. Errors as in nvllm_engine_step.
NVLLM_API enum nvllm_status nvllm_engine_wait(struct nvllm_engine *engine, double seconds,
                                              struct nvllm_error *error);

struct nvllm_result {
    uint32_t index; // of the output, below n
    struct nvllm_result *next; // the request's next output; NULL: none
    enum nvllm_finish_reason finish_reason;
    int32_t stop_token_id; // -1: none
    char *stop_string; // NULL: none
    int32_t *prompt_token_ids; // [num_prompt_tokens]; empty for a refused request
    size_t num_prompt_tokens;
    int32_t *token_ids; // [num_tokens]
    size_t num_tokens;
    // [text_len] NUL-terminated: the texts of all events. nvllm_tokenizer_decode of token_ids may
    // differ if byte tokens (byte fallback) are not UTF-8. It replaces each byte of such a run,
    // while the events had already delivered the characters before the fault.
    char *text;
    size_t text_len;
    uint32_t num_cached_tokens;
    int32_t num_top; // alternatives per token; -1: no logprobs were asked for
    struct nvllm_logprob *logprobs; // [num_tokens][1 + num_top]: the chosen one, then the best ones
    int32_t num_prompt_top; // the same of the prompt; -1: there are none
    // [num_prompt_tokens - 1][1 + num_prompt_top] as an event has them, of the first output alone;
    // NULL: not asked for, or the request ended before they were there
    struct nvllm_logprob *prompt_logprobs;
    struct nvllm_times times;
    struct nvllm_error error; // why, with NVLLM_FINISH_ERROR
    float *embedding; // [num_dimensions] of a request with pooling; NULL: there is none
    size_t num_dimensions;
    void *reserved[2]; // NULL; for fields of later versions
};

// Runs a list of requests to its end, along with the engine's other requests. *results
// [num_requests], in input order, is the caller's (nvllm_results_free). Each entry is the first of
// its request's n outputs. on_event and user_data of the requests work as usual. A refused request
// gets NVLLM_FINISH_ERROR and does not stop the others. A request beyond max_num_waiting or
// max_waiting_tokens is added as soon as there is room.
// NVLLM_ERR_INVALID: as in nvllm_engine_step. `interrupt` (may be NULL) is asked between steps, and
// replaces those of the requests. When it is wanted, unfinished requests get NVLLM_FINISH_ABORT,
// and the results so far are returned with NVLLM_OK.
NVLLM_API enum nvllm_status nvllm_engine_generate(struct nvllm_engine *engine,
                                                  const struct nvllm_request *requests,
                                                  size_t num_requests,
                                                  struct nvllm_result **results,
                                                  const struct nvllm_interrupt *interrupt,
                                                  struct nvllm_error *error);
NVLLM_API void nvllm_results_free(struct nvllm_result *results, size_t num_results);

#define NVLLM_DURATION_BUCKETS 13
// Durations by their length: counts[0] are those up to 1 us, counts[i] those up to 4^i us that are
// longer than 4^(i - 1) us, the last all that are longer. 4^11 us are 4.2 seconds.
struct nvllm_durations {
    uint64_t counts[NVLLM_DURATION_BUCKETS];
    double seconds; // of all
};

// Counters since the engine was created, as of its last step or wait. Only num_requests_added and
// num_waiting are of the moment of the call. A request with n outputs counts as n requests. Each
// one that was added and has not finished is counted as running or waiting. A struct whose
// struct_size is not the library's is not written. With data_parallel_size above 1 it has the sums
// over the engines; load_seconds and warm_up_seconds are the longest. block_size and max_model_len
// are of each engine.
struct nvllm_stats {
    size_t struct_size;
    uint64_t num_steps; // steps whose results the host has; the token counters are of these steps
    // Tokens run through the model together: of prompts, computed again, or which a form demanded.
    uint64_t num_prefill_tokens;
    // Generated tokens run through the model: one of each output in a step, and accepted drafts.
    uint64_t num_decode_tokens;
    uint64_t num_generated_tokens;
    uint64_t num_cached_tokens; // prompt tokens that the prefix cache saved
    uint64_t num_preemptions;
    uint64_t num_requests_added;
    uint64_t num_requests_finished; // including aborted ones
    uint32_t num_running; // now
    uint32_t num_waiting; // now; including preempted ones
    uint32_t num_kv_blocks;
    uint32_t num_kv_blocks_used; // now, by running requests
    uint32_t num_kv_blocks_peak;
    uint32_t block_size; // tokens
    uint32_t num_kv_groups; // of layers: each has a block of its own for the same tokens
    uint32_t num_kv_blocks_each; // the most that a request of max_model_len tokens holds at a time
    // Most tokens of a request, prompt and generated together: the option, or what the KV cache of
    // one engine holds if that is less.
    uint32_t max_model_len;
    uint32_t vocab_size; // token ids are below it
    // Requests that nvllm_engine_check_open or nvllm_engine_add_request refused, by the limit.
    uint64_t num_refused_max_num_waiting, num_refused_max_waiting_tokens;
    double load_seconds; // of the engine's creation
    double warm_up_seconds; // of load_seconds: kernels are timed and loaded, steps recorded
    double schedule_seconds; // scheduling and batch building
    double forward_seconds; // the model; on a GPU the time that the host waits for the step
    double sample_seconds; // on a GPU only the launch: the wait is in forward_seconds
    double output_seconds; // detokenizing, stops, callbacks
    uint64_t peak_rss_bytes;
    // The memory plan: memory of the GPU if the model runs there, else of the host.
    uint64_t weights_bytes;
    uint64_t workspace_bytes; // activations, batch, sampling, states of recurrent layers
    uint64_t kv_cache_bytes;
    // Requests with structured_outputs; those whose form an earlier request had, so that it was
    // compiled already; those that were refused for their form.
    uint64_t num_forms, num_forms_kept, num_forms_refused;
    struct nvllm_durations form_compile; // compilations of forms, also of refused ones
    struct nvllm_durations form_mask; // masks of the tokens that a form allows, one a sampled token
    // Drafts that steps ran, their tokens, and those of them that were right and not behind a stop.
    uint64_t num_drafts, num_draft_tokens, num_accepted_tokens;
};
#define NVLLM_STATS_INIT                                                                           \
    {                                                                                              \
        sizeof(struct nvllm_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {{0}, 0}, {{0}, 0}, 0, 0, 0,                       \
    }
NVLLM_API void nvllm_engine_stats(struct nvllm_engine *engine, struct nvllm_stats *stats);

// ---- observing steps ----

#define NVLLM_NO_BLOCK UINT32_MAX

// A sequence in a step. The step ran its tokens at positions [first_position, first_position +
// num_tokens). The keys and values of position p went to slot
// block_table[p / block_size] * block_size + p % block_size.
//
// Layers with different attention windows are in several KV groups, each with a block table of its
// own: that of group g begins at block_table + g * block_table_stride. A block before a group's
// window was given back: NVLLM_NO_BLOCK.
struct nvllm_step_item {
    uint64_t request_id;
    uint32_t index; // of the request's output, below n
    uint64_t sequence_id; // of this output alone: the number of its arrival, from 1
    // 1: tokens of the prompt, tokens computed again after a preemption, or several that a form
    // demanded. 0: the newest token, and drafts of those that follow.
    int32_t is_prefill;
    int32_t is_admitted; // 1: it waited before this step, new or preempted
    uint32_t num_prompt_tokens;
    uint32_t first_position, num_tokens;
    // Of the tokens, the last ones. num_output_tokens - 1 of them were right, if the output did not
    // end among them and no text of a form came with them.
    uint32_t num_drafts;
    const int32_t *token_ids; // [num_tokens]; -1: the request was aborted before the id was known
    const uint32_t *block_table; // [num_blocks] of positions [0, first_position + num_tokens)
    uint32_t num_blocks;
    uint32_t num_kv_groups, block_table_stride;
    // If admitted: the number of leading blocks that were found in the prefix cache.
    uint32_t num_hit_blocks;
    // [num_output_tokens] what the step added to the output. Empty if the prompt is not complete
    // yet or the request had ended. While steps overlap, a step may still run a request that the
    // step before ends.
    const int32_t *output_token_ids;
    uint32_t num_output_tokens;
    enum nvllm_finish_reason finish_reason; // NVLLM_FINISH_NONE: the request goes on
};

// Changes of a KV cache block.
enum nvllm_block_change {
    NVLLM_BLOCK_TAKEN = 1, // allocated from the free blocks; its cached content is lost
    NVLLM_BLOCK_HIT = 2, // an admitted request found it in the prefix cache
    NVLLM_BLOCK_SHARED = 4, // replaced a request's own block that held the same tokens
    NVLLM_BLOCK_CACHED = 8, // became full and entered the prefix cache
    NVLLM_BLOCK_LEFT = 16, // a request released it: it ended, was preempted, or shares another
};

struct nvllm_step_block {
    uint32_t block_id;
    uint32_t changes; // since the last call: a sum of enum nvllm_block_change
    uint32_t num_holders; // requests that have it in their tables now; 0: it is free, >= 2: shared
    const int32_t *token_ids; // [block_size] if it is in the prefix cache now; else NULL
};

// Seconds of CLOCK_MONOTONIC, in this order. While steps overlap, the next step is scheduled and
// launched between launch_end and wait_begin. If there was no step, all are the time of the call.
struct nvllm_step_times {
    double schedule_begin; // the scheduler picks the tokens and builds the batch
    double launch_begin; // a CPU computes here; a GPU's work is enqueued
    double sample_begin; // sampling, the last part of the launch; launch_end if it is not separate
    double launch_end;
    double wait_begin; // the host waits for the results
    double output_begin; // the results are there: ids become text and events
    double output_end;
};

// One step. Everything is borrowed and valid during the callback only.
struct nvllm_step_trace {
    uint64_t step; // counted from 1 since the engine was created; 0: requests ended without a step
    struct nvllm_step_times times;
    const struct nvllm_step_item *items; // [num_items] in the order of the batch
    uint32_t num_items;
    uint32_t num_prefill_tokens, num_decode_tokens; // sums over the items; drafts are decodes
    // [num_preempted] ids of preempted sequences: they released their blocks and wait again.
    const uint64_t *preempted;
    uint32_t num_preempted;
    // All that follows is the engine's state at the time of the call. While steps overlap, the next
    // step is scheduled by then, and its blocks are allocated.
    // [num_blocks] each block that changed since the last call, once. In the first call: each block
    // that is held or cached.
    const struct nvllm_step_block *blocks;
    uint32_t num_blocks;
    // Since the last call: how often a free block became held, and a held one free. The number of
    // blocks in use changed by the difference.
    uint32_t num_blocks_taken, num_blocks_freed;
    uint32_t num_running, num_waiting; // sequences; added requests not yet taken in do not count
    // KV cache blocks that are held, that are free but cached, and that are free and not cached.
    uint32_t num_kv_blocks_used, num_kv_blocks_cached, num_kv_blocks_free;
    uint32_t num_kv_blocks; // the sum of these three
    uint32_t block_size; // tokens
};

// Called on the engine's thread from nvllm_engine_step, _wait, _generate or _destroy. It is called
// once for each step, after the step's events are delivered, and once when requests ended without a
// step (aborts). If blocks are held or cached when it begins to observe, the next step or wait
// lists them. It may do all that an event's callback may do.
typedef void (*nvllm_step_fn)(const struct nvllm_step_trace *trace, void *user_data);

// From now on the engine calls on_step after every step. NULL: it stops, and a step then costs no
// more than without an observer. The thread that drives the engine may call this between any two
// steps. All memory is allocated here. NVLLM_ERR_INVALID: as in nvllm_engine_step. NVLLM_ERR_NOMEM:
// the previous observer stays. NVLLM_ERR_UNSUPPORTED: data_parallel_size is above 1.
NVLLM_API enum nvllm_status nvllm_engine_observe(struct nvllm_engine *engine, nvllm_step_fn on_step,
                                                 void *user_data, struct nvllm_error *error);

// A sequence that the engine has: an output of an unfinished request.
struct nvllm_sequence {
    uint64_t request_id;
    uint32_t index; // of the request's output, below n
    uint64_t sequence_id; // as in nvllm_step_item
    int32_t is_running; // 1: it holds blocks. 0: it waits, new or preempted
    uint32_t num_prompt_tokens;
    uint32_t num_tokens; // of the prompt and generated so far
    uint32_t num_computed_tokens; // whose keys and values are in the KV cache; 0 while it waits
    uint32_t num_cached_tokens; // of the prompt, that its first admission found in the prefix cache
    const uint32_t *block_table; // [num_blocks] borrowed until the next step, wait or destroy
    uint32_t num_blocks;
    uint32_t num_kv_groups, block_table_stride; // as in nvllm_step_item
};

// Copies up to `max` of the engine's sequences to `out`: the running ones, then the waiting ones,
// both in the order in which they are served. Returns how many it copied. Added requests that no
// step or wait has taken in are left out. With data_parallel_size above 1 it returns 0. Only the
// thread that drives the engine may call this, between any two steps or from an observer.
NVLLM_API size_t nvllm_engine_sequences(const struct nvllm_engine *engine,
                                        struct nvllm_sequence *out, size_t max);

// An observer that writes steps to a file as Chrome trace events (JSON), which ui.perfetto.dev
// shows and programs can read. Its memory does not grow with the number of steps.
struct nvllm_trace_file;

// *out is the caller's (nvllm_trace_file_close). `path` "-" is standard output. The old content of
// a file is dropped at the first step, or at close.
NVLLM_API enum nvllm_status nvllm_trace_file_open(struct nvllm_trace_file **out, const char *path,
                                                  struct nvllm_error *error);
// An nvllm_step_fn whose user_data is the file. A write error is reported at close; the steps after
// it are left out.
NVLLM_API void nvllm_trace_file_step(const struct nvllm_step_trace *trace, void *file);
// Completes the JSON, closes and frees. NULL is fine. NVLLM_ERR_IO: the file lacks steps.
NVLLM_API enum nvllm_status nvllm_trace_file_close(struct nvllm_trace_file *file,
                                                   struct nvllm_error *error);
// Closes and frees. A file that got no step keeps its old content. NULL is fine.
NVLLM_API void nvllm_trace_file_abandon(struct nvllm_trace_file *file);

// Describes the engine that these options would make, without loading weights: architecture,
// shapes, number of parameters, memory plan. *json, NUL-terminated, is the caller's (nvllm_free).
// Errors as in nvllm_engine_create.
NVLLM_API enum nvllm_status nvllm_inspect(const struct nvllm_engine_options *options, char **json,
                                          struct nvllm_error *error);

#ifdef __cplusplus
}
#endif

#endif
