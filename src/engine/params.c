/* The parameter tables and what reads them: setting a field by name from JSON text, and checking a
 * whole struct. Rules that a table cannot hold (a multiple, two fields together) are functions
 * below. Lists of sampling parameters are parsed in params_list.c. */
#include "engine/params.h"

#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu_choice.h"
#include "base/c_locale.h"
#include "base/jread.h"
#include "base/suggest.h"
#include "comm/comm.h"
#include "engine/data_parallel/request_router.h"
#include "engine/params_list.h"

enum { BLOCK_SIZE_MULTIPLE = 16, SENTENCE_MAX = 160 };

// 2^63: above every int64_t, and exact as a double.
#define INT64_TOP 0x1p63

#define SAMPLING(field) offsetof(struct nvllm_sampling_params, field)

// A minimum of FLT_MIN stands for an open range: "above 0".
static const struct nvllm_param sampling_table[] = {
    {"temperature", NVLLM_PARAM_FLOAT, SAMPLING(temperature), 0, 100, NULL,
     "randomness of sampling, 0 is greedy; default: the model's, else 1"},
    {"top_p", NVLLM_PARAM_FLOAT, SAMPLING(top_p), (double)FLT_MIN, 1, NULL,
     "sample from the likeliest tokens that together have this probability; default: the model's, "
     "else 1 (off)"},
    {"min_p", NVLLM_PARAM_FLOAT, SAMPLING(min_p), 0, 1, NULL,
     "drop tokens less likely than this share of the likeliest one; default: the model's, else 0 "
     "(off)"},
    {"top_k", NVLLM_PARAM_INT, SAMPLING(top_k), -1, INT32_MAX, NULL,
     "sample from this many of the likeliest tokens, 0 or -1 is off; default: the model's, else "
     "off"},
    {"repetition_penalty", NVLLM_PARAM_FLOAT, SAMPLING(repetition_penalty), (double)FLT_MIN, 10,
     NULL,
     "above 1 discourages tokens of the prompt and the output; default: the model's, else 1 (off)"},
    {"presence_penalty", NVLLM_PARAM_FLOAT, SAMPLING(presence_penalty), -2, 2, NULL,
     "subtracted from the logit of every token generated before; default 0"},
    {"frequency_penalty", NVLLM_PARAM_FLOAT, SAMPLING(frequency_penalty), -2, 2, NULL,
     "subtracted from a token's logit for each time it was generated; default 0"},
    {"max_tokens", NVLLM_PARAM_INT, SAMPLING(max_tokens), 1, INT32_MAX, NULL,
     "largest number of tokens to generate; default 256"},
    {"min_tokens", NVLLM_PARAM_INT, SAMPLING(min_tokens), 0, INT32_MAX, NULL,
     "number of first tokens among which EOS and stop tokens are banned and stop strings ignored; "
     "default 0"},
    {"skip_special_tokens", NVLLM_PARAM_BOOL, SAMPLING(skip_special_tokens), 0, 1, NULL,
     "leave special tokens out of the text; default true"},
    {"include_stop_str_in_output", NVLLM_PARAM_BOOL, SAMPLING(include_stop_str_in_output), 0, 1,
     NULL, "keep the stop string, or the EOS or stop token, at the end of the text; default false"},
    {"ignore_eos", NVLLM_PARAM_BOOL, SAMPLING(ignore_eos), 0, 1, NULL,
     "go on after the model's end-of-sequence token; default false"},
    {"n", NVLLM_PARAM_INT, SAMPLING(n), 1, PARAMS_N_MAX, NULL,
     "outputs for each prompt, each sampled independently; default 1"},
    {"logprobs", NVLLM_PARAM_INT, SAMPLING(logprobs), -1, NVLLM_LOGPROBS_MAX, NULL,
     "report log-probabilities of the chosen token and of this many best ones, before temperature "
     "and penalties, -1 is none; default -1"},
    {"prompt_logprobs", NVLLM_PARAM_INT, SAMPLING(prompt_logprobs), -1, NVLLM_LOGPROBS_MAX, NULL,
     "report log-probabilities of each token of the prompt and of this many best ones in its "
     "place, -1 is none; the prompt is then computed without cached prefixes; default -1"},
    {"echo", NVLLM_PARAM_BOOL, SAMPLING(echo), 0, 1, NULL,
     "begin the text with the prompt's; default false"},
    {"priority", NVLLM_PARAM_INT, SAMPLING(priority), INT32_MIN, INT32_MAX, NULL,
     "requests with a lower number run first and are preempted last; default 0"},
    {"seed", NVLLM_PARAM_INT64, SAMPLING(seed), -1, INT64_TOP, NULL,
     "seed of the request's sampling, output i of n uses seed + i, -1 derives it from the engine's "
     "seed and the request's number; default -1"},
    {"stop_token_ids", NVLLM_PARAM_IDS, SAMPLING(stop_token_ids), 0, INT32_MAX, NULL,
     "list of at most 1024 token ids that end the output; default none"},
    {"stop", NVLLM_PARAM_STRINGS, SAMPLING(stop), 0, 0, NULL,
     "string or list of at most 16 strings of at most 1024 bytes that end the output; default "
     "none"},
    {"allowed_token_ids", NVLLM_PARAM_IDS, SAMPLING(allowed_token_ids), 0, INT32_MAX, NULL,
     "list of at most 262144 token ids, all others are banned; default: nothing is banned"},
    {"bad_words", NVLLM_PARAM_STRINGS, SAMPLING(bad_words), 0, 0, NULL,
     "string or list of at most 1024 strings of at most 256 bytes that are never generated, "
     "encoded alone or after a space; default none"},
    {"logprob_token_ids", NVLLM_PARAM_IDS, SAMPLING(logprob_token_ids), 0, INT32_MAX, NULL,
     "list of at most 20 token ids that logprobs reports in place of the best ones; default none"},
    {"logit_bias", NVLLM_PARAM_BIASES, SAMPLING(logit_bias), -100, 100, NULL,
     "map of at most 1024 token ids to numbers added to their logits, \"-inf\" bans; default none"},
};

#define OPTION(field) offsetof(struct nvllm_engine_options, field)

static const struct nvllm_param option_table[] = {
    {"model", NVLLM_PARAM_STRING, OPTION(model), 0, 0, NULL,
     "folder with config.json, *.safetensors and tokenizer.json; required"},
    {"device", NVLLM_PARAM_STRING, OPTION(device), 0, 0, "auto|cuda|cuda:N|cpu",
     "device that runs the model, auto is cuda if there is a usable GPU, else cpu, cuda:N is GPU "
     "N, cuda:N,M,... are the GPUs of a host's ranks; default auto"},
    {"dtype", NVLLM_PARAM_STRING, OPTION(dtype), 0, 0, "auto|bfloat16|float32",
     "number format of the weights, auto is bfloat16; default auto"},
    {"quantization", NVLLM_PARAM_STRING, OPTION(quantization), 0, 0, "none|int8|int4",
     "quantize the weights while loading, CPU only; default none"},
    {"load_format", NVLLM_PARAM_STRING, OPTION(load_format), 0, 0, "auto|dummy",
     "dummy makes random weights and reads config.json only; default auto"},
    {"schedule", NVLLM_PARAM_STRING, OPTION(schedule), 0, 0, "mixed|prefill-first",
     "mixed runs prompts and decodes in one step, prefill-first runs prompts in steps of their own "
     "first; default mixed"},
    {"cpu_isa", NVLLM_PARAM_STRING, OPTION(cpu_isa), 0, 0,
     "auto|scalar|avx2|avx-vnni|avx512|avx512-vnni|avx512-bf16|amx|neon|neon-dotprod",
     "newest instruction set of the CPU kernels, auto takes the fastest kernels of all that the "
     "processor has; default auto"},
    {"threads", NVLLM_PARAM_INT, OPTION(threads), 0, 1024, NULL,
     "CPU threads, 0 is one for each core this process may use; default 0"},
    {"max_num_seqs", NVLLM_PARAM_INT, OPTION(max_num_seqs), 1, 65536, NULL,
     "largest number of sequences that run at once; default 256"},
    {"max_num_batched_tokens", NVLLM_PARAM_INT, OPTION(max_num_batched_tokens), 1, 1 << 20, NULL,
     "largest number of tokens in one step; default 2048"},
    {"max_num_waiting", NVLLM_PARAM_INT, OPTION(max_num_waiting), 0, INT32_MAX, NULL,
     "largest number of requests that wait for their first step, 0 is no limit; default 0"},
    {"max_waiting_tokens", NVLLM_PARAM_INT64, OPTION(max_waiting_tokens), 0, INT64_TOP, NULL,
     "largest number of prompt tokens of the waiting requests, 0 is no limit; default 0"},
    {"max_model_len", NVLLM_PARAM_INT, OPTION(max_model_len), 0, 1 << 24, NULL,
     "largest number of tokens in prompt and output together, 0 is 4096, or the model's maximum if "
     "that is less; default 0"},
    {"block_size", NVLLM_PARAM_INT, OPTION(block_size), 16, 4096, NULL,
     "tokens per KV cache block, a multiple of 16; default 16"},
    {"num_kvcache_blocks", NVLLM_PARAM_INT, OPTION(num_kvcache_blocks), 0, 1 << 27, NULL,
     "number of KV cache blocks, 0 is as many as kv_cache_gib holds; default 0"},
    {"kv_cache_gib", NVLLM_PARAM_DOUBLE, OPTION(kv_cache_gib), 0, 65536, NULL,
     "size of the KV cache in GiB, 0 is the rest of gpu_memory_utilization on a GPU, on a CPU a "
     "quarter of the free memory but at most 4; default 0"},
    {"enable_prefix_caching", NVLLM_PARAM_BOOL, OPTION(enable_prefix_caching), 0, 1, NULL,
     "reuse the keys and values of prompts that begin alike; default true"},
    {"skip_tokenizer_init", NVLLM_PARAM_BOOL, OPTION(skip_tokenizer_init), 0, 1, NULL,
     "run without tokenizer.json, prompts must be token ids; default false"},
    {"seed", NVLLM_PARAM_INT64, OPTION(seed), 0, INT64_TOP, NULL,
     "seed for the sampling of requests that set no seed of their own; default 0"},
    {"chat_template", NVLLM_PARAM_STRING, OPTION(chat_template), 0, 0, NULL,
     "file with the Jinja source of a chat template; default: the model's own"},
    {"gpu_memory_utilization", NVLLM_PARAM_DOUBLE, OPTION(gpu_memory_utilization), 0.01, 1, NULL,
     "share of the GPU's memory to use, the KV cache takes all that the rest leaves; default 0.9"},
    {"enforce_eager", NVLLM_PARAM_BOOL, OPTION(enforce_eager), 0, 1, NULL,
     "run every step op by op, without CUDA graphs; default false"},
    {"async_scheduling", NVLLM_PARAM_STRING, OPTION(async_scheduling), 0, 0, "auto|on|off",
     "prepare the next step while one runs, auto is on for a GPU, off for a CPU; default auto"},
    {"cache_dir", NVLLM_PARAM_STRING, OPTION(cache_dir), 0, 0, NULL,
     "folder that keeps the GPU's kernel timings between runs; default of the command: the user's "
     "cache folder"},
    {"kv_cache_dtype", NVLLM_PARAM_STRING, OPTION(kv_cache_dtype), 0, 0,
     "auto|bfloat16|float32|int8",
     "number format of keys and values, auto is bfloat16, float32 and int8 are CPU only; default "
     "auto"},
    {"tensor_parallel_size", NVLLM_PARAM_INT, OPTION(tensor_parallel_size), 1, COMM_RANKS_MAX, NULL,
     "processes that share each layer of the model; default 1"},
    {"data_parallel_size", NVLLM_PARAM_INT, OPTION(data_parallel_size), 1,
     REQUEST_ROUTER_ENGINES_MAX, NULL,
     "engines that share the requests, each with its own copy of the model; default 1"},
    {"distributed_executor_backend", NVLLM_PARAM_STRING, OPTION(distributed_executor_backend), 0, 0,
     "auto|mp|mpi",
     "who starts the processes, mp is the engine, mpi is mpirun, auto is mpirun if it has started "
     "this program; default auto"},
    {"worker_program", NVLLM_PARAM_STRING, OPTION(worker_program), 0, 0, NULL,
     "program that the worker processes run, nanovllm of this version; default of the command: "
     "itself"},
    {"comm", NVLLM_PARAM_STRING, OPTION(comm), 0, 0, "auto|p2p|nccl",
     "how the GPUs of tensor_parallel_size exchange data, auto is p2p if they reach each other's "
     "memory, else nccl; default auto"},
    {"numa", NVLLM_PARAM_STRING, OPTION(numa), 0, 0, "auto|off",
     "auto spreads weights and KV cache over the NUMA nodes of the CPUs; default auto"},
};

static const struct nvllm_sampling_params sampling_defaults = NVLLM_SAMPLING_PARAMS_INIT;
static const struct nvllm_engine_options option_defaults = NVLLM_ENGINE_OPTIONS_INIT;

const struct nvllm_param *params_sampling(size_t index) {
    return index < ARRAY_LEN(sampling_table) ? &sampling_table[index] : NULL;
}

const struct nvllm_param *params_engine_option(size_t index) {
    return index < ARRAY_LEN(option_table) ? &option_table[index] : NULL;
}

static const struct nvllm_param *find_param(const struct nvllm_param *table, size_t num_params,
                                            const char *name, const char *kind, struct err *err) {
    const char *names[ARRAY_LEN(sampling_table) + ARRAY_LEN(option_table)];
    if (!name) name = "";
    for (size_t i = 0; i < num_params; i++) {
        if (strcmp(table[i].name, name) == 0) return &table[i];
        names[i] = table[i].name;
    }
    char excerpt[PARAMS_EXCERPT_MAX];
    params_excerpt(excerpt, name);
    const char *nearest = suggest_nearest(name, names, num_params);
    if (nearest) {
        err_set(err, ERR_INVALID, "unknown %s \"%s\"; did you mean \"%s\"?", kind, excerpt,
                nearest);
    } else {
        err_set(err, ERR_INVALID, "unknown %s \"%s\"", kind, excerpt);
    }
    return NULL;
}

static size_t field_size(enum nvllm_param_type type) {
    switch (type) {
    case NVLLM_PARAM_INT:
    case NVLLM_PARAM_BOOL:
        return sizeof(int32_t);
    case NVLLM_PARAM_INT64:
        return sizeof(int64_t);
    case NVLLM_PARAM_FLOAT:
        return sizeof(float);
    case NVLLM_PARAM_DOUBLE:
        return sizeof(double);
    case NVLLM_PARAM_STRING:
    case NVLLM_PARAM_STRINGS:
    case NVLLM_PARAM_IDS:
    case NVLLM_PARAM_BIASES:
        break;
    }
    return sizeof(void *);
}

// "an integer from 1 to 20": what a field wants, for the end of a sentence.
static void describe_range(char out[SENTENCE_MAX], const struct nvllm_param *param) {
    if (param->choices) {
        size_t len = 0;
        for (const char *p = param->choices; *p && len + 4 < SENTENCE_MAX; p++) {
            if (*p != '|') {
                out[len++] = *p;
                continue;
            }
            const char *joint = strchr(p + 1, '|') ? ", " : " or ";
            len += (size_t)snprintf(out + len, SENTENCE_MAX - len, "%s", joint);
        }
        out[len] = '\0';
    } else if (param->type == NVLLM_PARAM_BOOL) {
        snprintf(out, SENTENCE_MAX, "true or false");
    } else if (param->type == NVLLM_PARAM_STRING) {
        snprintf(out, SENTENCE_MAX, "a string");
    } else if (param->type == NVLLM_PARAM_INT || param->type == NVLLM_PARAM_INT64) {
        long long max = param->max >= INT64_TOP ? INT64_MAX : (long long)param->max;
        snprintf(out, SENTENCE_MAX, "an integer from %lld to %lld", (long long)param->min, max);
    } else if (param->min == (double)FLT_MIN) {
        c_locale_snprintf(out, SENTENCE_MAX, "a number above 0 and at most %.10g", param->max);
    } else {
        c_locale_snprintf(out, SENTENCE_MAX, "a number from %.10g to %.10g", param->min,
                          param->max);
    }
}

static enum status refuse(const struct nvllm_param *param, const char *value, struct err *err) {
    char excerpt[PARAMS_EXCERPT_MAX], want[SENTENCE_MAX];
    params_excerpt(excerpt, value);
    describe_range(want, param);
    return err_set(err, ERR_INVALID, "%s is %s, want %s", param->name, excerpt, want);
}

// "cuda:N" stands for all names of GPUs by number.
static bool is_this_choice(const char *choice, size_t len, const char *value) {
    if (len < 2 || memcmp(choice + len - 2, ":N", 2) != 0) {
        return strlen(value) == len && memcmp(choice, value, len) == 0;
    }
    if (strncmp(choice, value, len - 1) != 0) return false;
    struct gpu_choice gpus;
    return gpu_choice_parse(&gpus, value);
}

static bool is_choice(const char *choices, const char *value) {
    for (const char *p = choices;;) {
        size_t len = strcspn(p, "|");
        if (is_this_choice(p, len, value)) return true;
        if (!p[len]) return false;
        p += len + 1;
    }
}

static enum status set_number(void *field, const struct nvllm_param *param, const char *value,
                              struct err *err) {
    json_t *json = NULL;
    enum status status = jread_text(&json, value, strlen(value), param->name, err);
    if (status == ERR_NOMEM) return status;
    bool whole = param->type != NVLLM_PARAM_FLOAT && param->type != NVLLM_PARAM_DOUBLE;
    bool good = !status && (whole ? json_is_integer(json) : json_is_number(json));
    if (param->type == NVLLM_PARAM_BOOL && json_is_boolean(json)) good = true;
    double number = json_is_boolean(json) ? json_is_true(json) : json_number_value(json);
    int64_t integer = json_is_boolean(json) ? json_is_true(json) : json_integer_value(json);
    json_decref(json);
    if (!good || !(number >= param->min && number <= param->max)) return refuse(param, value, err);
    if (param->type == NVLLM_PARAM_FLOAT) {
        float narrow = (float)number;
        memcpy(field, &narrow, sizeof narrow);
    } else if (param->type == NVLLM_PARAM_DOUBLE) {
        memcpy(field, &number, sizeof number);
    } else if (param->type == NVLLM_PARAM_INT64) {
        memcpy(field, &integer, sizeof integer);
    } else {
        int32_t narrow = (int32_t)integer;
        memcpy(field, &narrow, sizeof narrow);
    }
    return OK;
}

enum status params_set_sampling(struct nvllm_sampling_params *params, const char *name,
                                const char *value, struct err *err) {
    const struct nvllm_param *param =
        find_param(sampling_table, ARRAY_LEN(sampling_table), name, "sampling parameter", err);
    if (!param) return ERR_INVALID;
    if (!value) return err_set(err, ERR_INVALID, "%s has no value", param->name);
    size_t max = params_text_max(param);
    if (strnlen(value, max + 1) > max) {
        return err_set(err, ERR_INVALID, "%s is longer than %zu KiB", param->name, max >> 10);
    }
    if (params_is_list(param)) return params_list_set(params, param, value, err);
    void *field = (char *)params + param->offset;
    if (params_is_null(value)) {
        memcpy(field, (const char *)&sampling_defaults + param->offset, field_size(param->type));
        return OK;
    }
    return set_number(field, param, value, err);
}

static enum status check_block_size(int32_t block_size, struct err *err) {
    if (block_size % BLOCK_SIZE_MULTIPLE == 0) return OK;
    return err_set(err, ERR_INVALID, "block_size is %d, want a multiple of %d", block_size,
                   BLOCK_SIZE_MULTIPLE);
}

enum status params_set_engine_option(struct nvllm_engine_options *options, const char *name,
                                     const char *value, struct err *err) {
    const struct nvllm_param *param =
        find_param(option_table, ARRAY_LEN(option_table), name, "engine option", err);
    if (!param) return ERR_INVALID;
    if (!value) return err_set(err, ERR_INVALID, "%s has no value", param->name);
    struct nvllm_engine_options changed = *options;
    void *field = (char *)&changed + param->offset;
    enum status status = OK;
    if (params_is_null(value)) {
        memcpy(field, (const char *)&option_defaults + param->offset, field_size(param->type));
    } else if (param->type == NVLLM_PARAM_STRING) {
        if (param->choices && !is_choice(param->choices, value)) return refuse(param, value, err);
        memcpy(field, &value, sizeof value);
    } else {
        status = set_number(field, param, value, err);
    }
    if (!status && param->offset == OPTION(block_size)) {
        status = check_block_size(changed.block_size, err);
    }
    if (!status) *options = changed;
    return status;
}

void params_fini_sampling(struct nvllm_sampling_params *params) {
    if (!params) return;
    params_list_free_owned(params->owned);
    *params = sampling_defaults;
}

static enum status check_number(const struct nvllm_param *param, const void *field,
                                struct err *err) {
    double number = 0;
    char text[48];
    if (param->type == NVLLM_PARAM_FLOAT) {
        float value;
        memcpy(&value, field, sizeof value);
        number = (double)value;
        c_locale_snprintf(text, sizeof text, "%.9g", number);
    } else if (param->type == NVLLM_PARAM_DOUBLE) {
        memcpy(&number, field, sizeof number);
        c_locale_snprintf(text, sizeof text, "%.17g", number);
    } else if (param->type == NVLLM_PARAM_INT64) {
        int64_t value;
        memcpy(&value, field, sizeof value);
        number = (double)value;
        snprintf(text, sizeof text, "%lld", (long long)value);
    } else {
        int32_t value;
        memcpy(&value, field, sizeof value);
        number = value;
        snprintf(text, sizeof text, "%d", value);
    }
    if (number >= param->min && number <= param->max) return OK; // NaN is neither
    return refuse(param, text, err);
}

static enum status check_string(const struct nvllm_param *param, const void *field,
                                struct err *err) {
    const char *value;
    memcpy(&value, field, sizeof value);
    if (!value || !param->choices || is_choice(param->choices, value)) return OK;
    return refuse(param, value, err);
}

enum status params_check_sampling(const struct nvllm_sampling_params *params, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(sampling_table); i++) {
        const struct nvllm_param *param = &sampling_table[i];
        const char *field = (const char *)params + param->offset;
        const char *unset = (const char *)&sampling_defaults + param->offset;
        bool is_list = params_is_list(param);
        if (!is_list && memcmp(field, unset, field_size(param->type)) == 0) continue;
        enum status status =
            is_list ? params_list_check(params, param, err) : check_number(param, field, err);
        if (status) return status;
    }
    return OK;
}

enum status params_check_engine_options(const struct nvllm_engine_options *options,
                                        struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(option_table); i++) {
        const struct nvllm_param *param = &option_table[i];
        const char *field = (const char *)options + param->offset;
        enum status status = param->type == NVLLM_PARAM_STRING ? check_string(param, field, err)
                                                               : check_number(param, field, err);
        if (status) return status;
    }
    if (!options->model || !options->model[0]) {
        return err_set(err, ERR_INVALID, "model is not set, want the folder of a checkpoint");
    }
    enum status status = check_block_size(options->block_size, err);
    if (status) return status;
    if (options->num_kvcache_blocks > INT32_MAX / options->block_size) {
        return err_set(
            err, ERR_INVALID, "num_kvcache_blocks is %d, want at most %d with a block_size of %d",
            options->num_kvcache_blocks, INT32_MAX / options->block_size, options->block_size);
    }
    return OK;
}
