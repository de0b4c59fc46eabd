/* `nanovllm inspect` describes the engine that these options would make, without loading
 * weights. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/os/output_file.h"
#include "base/text/buf.h"
#include "cmd/cli.h"
#include "cmd/model/model_place.h"

struct inspect {
    struct nvllm_engine_options engine_options;
    int32_t json, check;
    json_t *info; // the library's description
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"json", NVLLM_PARAM_BOOL, offsetof(struct inspect, json), 0, 1, NULL,
         "print the whole description as one JSON object"},
        {"check", NVLLM_PARAM_BOOL, offsetof(struct inspect, check), 0, 1, NULL,
         "exit with 1 unless --max-num-seqs sequences of full length fit at once; default false"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Shows a model's architecture, number of parameters and the memory that an engine\n"
    "with these options would take, and how many sequences of --max-model-len tokens\n"
    "fit. Reads config.json and generation_config.json; loads no weights.\n";

// "1.23 GiB", in the largest unit that gives a number of at least 1.
static void format_bytes(char *out, size_t size, json_int_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, size, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
}

// "751,632,384": digits in groups of three.
static void format_count(char *out, size_t size, json_int_t count) {
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)count);
    size_t used = 0;
    for (int i = 0; i < len && used + 2 < size; i++) {
        if (i && (len - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
}

static enum status add_row(struct buf *out, const char *name, const char *value, struct err *err) {
    return buf_appendf(out, err, "%-24s%s\n", name, value);
}

static enum status add_value(struct buf *out, const char *label, const json_t *value,
                             struct err *err) {
    char text[64];
    if (json_is_string(value)) return add_row(out, label, json_string_value(value), err);
    if (json_is_boolean(value)) {
        return add_row(out, label, json_is_true(value) ? "yes" : "no", err);
    }
    if (json_is_real(value)) {
        snprintf(text, sizeof text, "%g", json_real_value(value));
    } else {
        format_count(text, sizeof text, json_integer_value(value));
    }
    return add_row(out, label, text, err);
}

static enum status add_bytes(struct buf *out, const char *label, const json_t *value,
                             struct err *err) {
    char text[64];
    format_bytes(text, sizeof text, json_integer_value(value));
    return add_row(out, label, text, err);
}

// Lists and maps of numbers on one line: "4091 4089", "temperature 0.6, top_k 20".
static enum status add_list(struct buf *out, const char *label, const json_t *values,
                            struct err *err) {
    enum status status = buf_appendf(out, err, "%-24s", label);
    size_t num_values = json_is_array(values) ? json_array_size(values) : json_object_size(values);
    if (!status && num_values == 0) status = buf_append_str(out, "none", err);
    for (size_t i = 0; i < json_array_size(values) && !status; i++) {
        status = buf_appendf(out, err, i ? " %lld" : "%lld",
                             (long long)json_integer_value(json_array_get(values, i)));
    }
    const char *key, *separator = "";
    const json_t *value;
    void *iterator = json_object_iter((json_t *)(uintptr_t)values);
    for (; iterator && !status;
         iterator = json_object_iter_next((json_t *)(uintptr_t)values, iterator)) {
        key = json_object_iter_key(iterator);
        value = json_object_iter_value(iterator);
        status = buf_appendf(out, err, "%s%s %g", separator, key, json_number_value(value));
        separator = ", ";
    }
    return status ? status : buf_append_str(out, "\n", err);
}

enum row_kind { ROW_VALUE, ROW_BYTES, ROW_LIST };

struct row {
    const char *key, *label;
    enum row_kind kind;
};

static const struct row model_rows[] = {
    {"family", "Family", ROW_VALUE},
    {"architecture", "Architecture", ROW_VALUE},
    {"num_parameters", "Parameters", ROW_VALUE},
    {"num_active_parameters", "Active per token", ROW_VALUE},
    {"dtype", "Checkpoint dtype", ROW_VALUE},
    {"weight_dtype", "Weight dtype", ROW_VALUE},
    {"kv_cache_dtype", "KV cache dtype", ROW_VALUE},
    {"num_layers", "Layers", ROW_VALUE},
    {"hidden_size", "Hidden size", ROW_VALUE},
    {"intermediate_size", "Intermediate size", ROW_VALUE},
    {"num_sparse_layers", "Layers with experts", ROW_VALUE},
    {"num_experts", "Experts per layer", ROW_VALUE},
    {"num_experts_per_tok", "Experts per token", ROW_VALUE},
    {"moe_intermediate_size", "Expert intermediate", ROW_VALUE},
    {"norm_topk_prob", "Weights normalized", ROW_VALUE},
    {"num_heads", "Attention heads", ROW_VALUE},
    {"num_kv_heads", "KV heads", ROW_VALUE},
    {"head_dim", "Head dimension", ROW_VALUE},
    {"vocab_size", "Vocabulary", ROW_VALUE},
    {"tie_word_embeddings", "Tied embeddings", ROW_VALUE},
    {"rope_type", "RoPE", ROW_VALUE},
    {"rope_theta", "RoPE theta", ROW_VALUE},
    {"max_position_embeddings", "Maximum positions", ROW_VALUE},
    {"max_model_len", "Longest sequence", ROW_VALUE},
    {"eos_token_ids", "EOS token ids", ROW_LIST},
    {"sampling_defaults", "Sampling defaults", ROW_LIST},
    {"device", "Device", ROW_VALUE},
};

static const struct row plan_rows[] = {
    {"weights_bytes", "Weights", ROW_BYTES},
    {"workspace_bytes", "Workspace", ROW_BYTES},
    {"state_bytes", "Recurrent states", ROW_BYTES}, // these four only with recurrent layers
    {"num_state_slots", "Slots for states", ROW_VALUE},
    {"state_bytes_each", "Bytes per slot", ROW_BYTES},
    {"enable_prefix_caching", "Prefix caching", ROW_VALUE},
    {"kv_cache_bytes", "KV cache", ROW_BYTES},
    {"scheduler_bytes", "Tables of blocks", ROW_BYTES},
    {"total_bytes", "Total", ROW_BYTES},
    {"memory_available_bytes", "Available now", ROW_BYTES},
    {"block_size", "Tokens per KV block", ROW_VALUE},
    {"kv_block_bytes", "Bytes per KV block", ROW_BYTES},
    {"num_kv_blocks", "KV blocks", ROW_VALUE},
    {"kv_cache_tokens", "KV cache tokens", ROW_VALUE},
    {"kv_group_windows", "Windows of KV groups", ROW_LIST}, // the last three only with windows
    {"layers_per_kv_group", "Layers per KV group", ROW_VALUE},
    {"kv_blocks_per_sequence", "KV blocks per sequence", ROW_VALUE},
};

static enum status add_rows(struct buf *out, const json_t *object, const struct row *rows,
                            size_t num_rows, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < num_rows && !status; i++) {
        const json_t *value = json_object_get(object, rows[i].key);
        if (!value) continue;
        switch (rows[i].kind) {
        case ROW_VALUE:
            status = add_value(out, rows[i].label, value, err);
            break;
        case ROW_BYTES:
            status = add_bytes(out, rows[i].label, value, err);
            break;
        case ROW_LIST:
            status = add_list(out, rows[i].label, value, err);
            break;
        }
    }
    return status;
}

static bool all_fit(const json_t *plan) {
    return json_is_true(json_object_get(json_object_get(plan, "full_length"), "fits"));
}

// Writes what is missing for all sequences to fit at full length.
static void format_lack(char *out, size_t size, const json_t *plan) {
    const json_t *users = json_object_get(plan, "full_length");
    json_int_t wanted = model_info_int(users, "max_num_seqs");
    json_int_t total = model_info_int(users, "total_bytes");
    json_int_t planned = model_info_int(plan, "total_bytes");
    json_int_t available = model_info_int(plan, "memory_available_bytes");
    char bytes[64];
    if (available && total > available) {
        format_bytes(bytes, sizeof bytes, total - available);
        snprintf(out, size, "they need %s more than is free", bytes);
    } else if (available && planned > available) {
        format_bytes(bytes, sizeof bytes, planned - available);
        snprintf(out, size, "this KV cache needs %s more than is free", bytes);
    } else {
        double each = (double)model_info_int(users, "kv_bytes_each");
        double gib = each * (double)wanted / (1024.0 * 1024.0 * 1024.0);
        snprintf(out, size, "this KV cache is too small, --kv-cache-gib %.3f is enough",
                 gib + 0.0005); // rounded up
    }
}

static enum status add_count(struct buf *out, const char *label, const json_t *object,
                             const char *key, struct err *err) {
    return add_value(out, label, json_object_get(object, key), err);
}

static enum status add_users(struct buf *out, const json_t *info, struct err *err) {
    const json_t *plan = json_object_get(info, "plan");
    const json_t *users = json_object_get(plan, "full_length");
    bool is_known = model_info_int(plan, "memory_available_bytes") != 0;
    char text[160], lack[128];
    format_count(text, sizeof text, model_info_int(info, "max_model_len"));
    enum status status = buf_appendf(out, err, "\nSequences of %s tokens\n", text);
    if (!status) {
        status = add_bytes(out, "KV cache of each", json_object_get(users, "kv_bytes_each"), err);
    }
    if (!status) status = add_count(out, "Fit in this KV cache", users, "num_in_kv_cache", err);
    if (!status && is_known) {
        status = add_count(out, "Fit in the free memory", users, "num_in_memory", err);
    }
    if (!status) status = add_count(out, "Wanted, --max-num-seqs", users, "max_num_seqs", err);
    if (!status) {
        status = add_bytes(out, "Total for these", json_object_get(users, "total_bytes"), err);
    }
    if (status) return status;
    if (all_fit(plan)) return add_row(out, "Do they fit", "yes", err);
    format_lack(lack, sizeof lack, plan);
    snprintf(text, sizeof text, "no: %s", lack);
    return add_row(out, "Do they fit", text, err);
}

static enum status describe(struct buf *out, const json_t *info, struct err *err) {
    enum status status = add_rows(out, info, model_rows, ARRAY_LEN(model_rows), err);
    if (!status) status = buf_append_str(out, "\nMemory plan\n", err);
    const json_t *plan = json_object_get(info, "plan");
    if (!status) status = add_rows(out, plan, plan_rows, ARRAY_LEN(plan_rows), err);
    return status ? status : add_users(out, info, err);
}

// --json prints the library's text as it is, so that no member is lost.
static enum status print_description(struct inspect *inspect, struct buf *out, struct err *err) {
    char *text;
    enum status status = model_info_read(&text, &inspect->info, &inspect->engine_options, err);
    if (!status) {
        status =
            inspect->json ? buf_appendf(out, err, "%s\n", text) : describe(out, inspect->info, err);
    }
    nvllm_free(text);
    return status;
}

static int check(const struct inspect *inspect) {
    const json_t *plan = json_object_get(inspect->info, "plan");
    if (!inspect->check || all_fit(plan)) return CLI_OK;
    char lack[128];
    format_lack(lack, sizeof lack, plan);
    const json_t *users = json_object_get(plan, "full_length");
    return cli_error("%lld sequences of %lld tokens do not fit: %s",
                     (long long)model_info_int(users, "max_num_seqs"),
                     (long long)model_info_int(inspect->info, "max_model_len"), lack);
}

int cmd_inspect(int argc, char **argv) {
    struct inspect inspect = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT};
    const struct option_group groups[] = {
        {.title = "Output", .row = own_option, .target = &inspect},
        cli_engine_group(&inspect.engine_options),
    };
    struct options options = {.command = "inspect",
                              .synopsis = "-m MODEL [options]",
                              .details = details,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (!inspect.engine_options.model) {
        return cli_usage_error(&options, "no model given: use -m MODEL");
    }
    if (options.num_args) {
        return cli_usage_error(&options, "unexpected argument %s", options.args[0]);
    }
    struct err err = {0};
    struct buf out = {0};
    struct output_file file;
    struct model_place place;
    enum status status = model_place_find(&place, &inspect.engine_options, true, &err);
    if (!status) status = print_description(&inspect, &out, &err);
    if (!status) status = output_file_open(&file, "-", &err);
    if (!status) status = output_file_write(&file, out.data, out.len, &err);
    buf_fini(&out);
    exit_code = status ? cli_error("%s", err.message) : check(&inspect);
    json_decref(inspect.info);
    return exit_code;
}
