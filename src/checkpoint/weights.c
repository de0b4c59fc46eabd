/* Opening makes one table of all tensors, with one hash map by name. Taking a tensor only compares
 * shapes and sets a flag. */
#include "checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/os/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dummy/weights_dummy.h"
#include "checkpoint/quantized/quantized_module.h"
#include "checkpoint/spare_tensors.h"
#include "checkpoint/tensor.h"
#include "checkpoint/tensors/tensor_hash.h"
#include "checkpoint/tensors/tensor_table.h"

enum {
    SHAPE_TEXT_MAX = 200,
    NAME_MAX_BYTES = 256,
    PART_NAME_BYTES = NAME_MAX_BYTES + 32,
};

// What weights_release frees: one of the two.
struct owned {
    struct matrix_reader *reader;
    void *memory;
};

struct weights {
    struct tensor_table table; // empty: dummy weights
    struct weights_dummy *dummy; // NULL: a real checkpoint
    struct quantization_config quantization;
    bool has_other_parts;
    uint32_t first_ignored, num_ignored; // layers
    enum expert_layout expert_layout;
    uint32_t num_experts; // of a layer
    struct owned *owned; // [num_owned]
    size_t num_owned, max_owned;
};

// "[1024, 3072]"
static const char *shape_text(char text[SHAPE_TEXT_MAX], uint32_t rank, const uint64_t *shape) {
    int used = snprintf(text, SHAPE_TEXT_MAX, "[");
    for (uint32_t i = 0; i < rank; i++) { // 8 dimensions of 20 digits fit
        used += snprintf(text + used, (size_t)(SHAPE_TEXT_MAX - used), "%s%llu", i ? ", " : "",
                         (unsigned long long)shape[i]);
    }
    snprintf(text + used, (size_t)(SHAPE_TEXT_MAX - used), "]");
    return text;
}

enum status weights_open(struct weights **out, const struct checkpoint *checkpoint,
                         struct err *err) {
    *out = NULL;
    struct weights *weights = calloc(1, sizeof *weights);
    if (!weights) return err_nomem(err, "weights");
    enum status status = tensor_table_open(&weights->table, checkpoint, err);
    if (status) weights_close(weights);
    if (!status) *out = weights;
    return status;
}

enum status weights_open_dummy(struct weights **out, struct err *err) {
    *out = NULL;
    struct weights *weights = calloc(1, sizeof *weights);
    if (!weights) return err_nomem(err, "weights");
    enum status status = weights_dummy_create(&weights->dummy, err);
    if (status) weights_close(weights);
    if (!status) *out = weights;
    return status;
}

void weights_close(struct weights *weights) {
    if (!weights) return;
    weights_release(weights);
    free(weights->owned);
    tensor_table_close(&weights->table);
    weights_dummy_destroy(weights->dummy);
    free(weights);
}

void weights_set_quantization(struct weights *weights, const struct quantization_config *config) {
    weights->quantization = *config;
}

void weights_set_experts(struct weights *weights, enum expert_layout layout, uint32_t num_experts) {
    weights->expert_layout = layout;
    weights->num_experts = num_experts;
}

void weights_ignore_layers(struct weights *weights, uint32_t first, uint32_t count) {
    weights->first_ignored = first;
    weights->num_ignored = count;
}

void weights_ignore_other_parts(struct weights *weights) {
    weights->has_other_parts = true;
}

void weights_release(struct weights *weights) {
    while (weights->num_owned) {
        struct owned *owned = &weights->owned[--weights->num_owned];
        if (owned->reader) owned->reader->close(owned->reader);
        free(owned->memory);
    }
}

// Room for what is to be freed; NULL: no memory. Pointers to earlier ones are not kept.
static struct owned *add_owned(struct weights *weights, struct err *err) {
    if (weights->num_owned == weights->max_owned) {
        size_t max = weights->max_owned ? 2 * weights->max_owned : 64;
        struct owned *grown = realloc(weights->owned, max * sizeof *grown);
        if (!grown) {
            (void)err_nomem(err, "quantized weights");
            return NULL;
        }
        weights->owned = grown;
        weights->max_owned = max;
    }
    struct owned *owned = &weights->owned[weights->num_owned];
    *owned = (struct owned){0};
    return owned;
}

static struct table_entry *find_entry(const struct weights *weights, const char *name) {
    return tensor_table_find(&weights->table, name);
}

static enum status check_shape(const struct table_entry *entry, uint32_t rank,
                               const uint64_t *shape, struct err *err) {
    const struct tensor *tensor = entry->tensor;
    bool equal = tensor->rank == rank;
    for (uint32_t i = 0; i < rank && equal; i++) equal = tensor->shape[i] == shape[i];
    // A number, and a matrix of one row, are vectors too.
    if (rank == 1 && tensor->rank == 0) equal = shape[0] == 1;
    if (rank == 1 && tensor->rank == 2 && tensor->shape[0] == 1) equal = tensor->shape[1] == *shape;
    // MLX has a convolution's weights as [channels][width][1].
    if (rank == 2 && tensor->rank == 3 && tensor->shape[2] == 1 && tensor->shape[1] == shape[1]) {
        equal = tensor->shape[0] == shape[0];
    }
    if (rank == 2 && tensor->rank == 3 && tensor->shape[2] == shape[1]) {
        uint64_t rows = 0;
        equal =
            !__builtin_mul_overflow(tensor->shape[0], tensor->shape[1], &rows) && rows == shape[0];
    }
    if (equal) return OK;
    char found[SHAPE_TEXT_MAX];
    char want[SHAPE_TEXT_MAX];
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has the shape %s, the model wants %s",
                   entry->tensor->path, tensor->name,
                   shape_text(found, tensor->rank, tensor->shape), shape_text(want, rank, shape));
}

static enum status mark_used(struct table_entry *entry, struct err *err) {
    if (entry->used) {
        return err_set(err, ERR_INVALID, "%s: tensor \"%.200s\" was taken twice",
                       entry->tensor->path, entry->tensor->name);
    }
    entry->used = true;
    return OK;
}

// Of dummy weights the linears of layers are in the format of the configuration, as published
// checkpoints have it: no routers, no embedding and no lm_head.
static enum status dummy_form(const struct weights *weights, const char *name, uint64_t cols,
                              struct matrix_form *out, struct err *err) {
    static const char *const endings[] = {"_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight"};
    char module_name[NAME_MAX_BYTES];
    size_t len = strlen(name);
    *out = (struct matrix_form){0};
    bool is_linear = false;
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) is_linear |= file_name_ends(name, endings[i]);
    is_linear = is_linear && len < sizeof module_name;
    if (weights->quantization.method == QUANTIZED_NOT || !is_linear) return OK;
    memcpy(module_name, name, len - strlen(".weight"));
    module_name[len - strlen(".weight")] = '\0';
    const struct quantization_config *config;
    enum status status =
        quantization_config_of(&config, &weights->quantization, module_name, module_name, err);
    const struct quantized_module module = {.name = module_name, .in = cols};
    return status || !config ? status : quantized_module_form(out, &module, config, err);
}

static enum status take_dummy_codes(struct weights *weights, const char *name,
                                    struct matrix_form form, struct weight *out, struct err *err) {
    struct owned *owned = add_owned(weights, err);
    if (!owned) return ERR_NOMEM;
    enum status status = weights_dummy_codes(&owned->reader, name, form, err);
    if (status) return status;
    weights->num_owned++;
    out->reader = owned->reader;
    out->dtype = DTYPE_F32;
    return OK;
}

static enum status take_dummy(struct weights *weights, const char *name, struct weight *out,
                              struct err *err) {
    if (out->rank == 1) {
        static const char *const endings[] = {"norm.weight", "norm_1.weight", "norm_2.weight",
                                              ".layer_scalar", "scale"};
        bool is_factor = false;
        for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
            is_factor |= file_name_ends(name, endings[i]);
        }
        return weights_dummy_vector(weights->dummy, is_factor, out->shape[0], &out->source.data,
                                    err);
    }
    struct matrix_form form;
    enum status status = dummy_form(weights, name, out->shape[1], &form, err);
    if (status) return status;
    if (form.code != WEIGHT_CODE_NONE) return take_dummy_codes(weights, name, form, out, err);
    uint64_t count;
    if (__builtin_mul_overflow(out->shape[0], out->shape[1], &count)) {
        return err_nomem(err, "dummy weights");
    }
    return weights_dummy_matrix(weights->dummy, name, count, &out->source.data, err);
}

static void name_part(char out[PART_NAME_BYTES], const char *module, int part) {
    snprintf(out, PART_NAME_BYTES, "%s.%s", module, module_part_name((enum module_part)part));
}

// The module's name in the checkpoint, which in a wrapper's has a prefix: a tensor's without the
// ending.
static void name_in_file(char out[NAME_MAX_BYTES], const char *tensor, const char *ending) {
    size_t len = strlen(tensor) - strlen(ending);
    snprintf(out, NAME_MAX_BYTES, "%.*s", (int)len, tensor);
}

static struct table_entry *find_beside(const struct weights *weights, const char *module,
                                       const char *ending) {
    char name[PART_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", module, ending);
    return find_entry(weights, name);
}

// The tensor with the scales of all experts of the module's layer. NULL: there is none.
static struct table_entry *find_scales_of_all(const struct weights *weights, const char *module,
                                              struct expert_place *place) {
    char name[PART_NAME_BYTES];
    name_part(name, module, PART_WEIGHT);
    if (!expert_place_parse(place, name)) return NULL;
    place->num_experts = weights->num_experts;
    return find_beside(weights, place->module, "_scale_inv");
}

// A linear of "NAME.weight" in the format of the configuration: looks for its tensors beside that
// name. *config is its format; NULL: there is none of them, or the configuration says that it is
// not quantized.
static enum status find_module(const struct quantization_config **config,
                               const struct weights *weights, const char *name,
                               const uint64_t *shape, char module[NAME_MAX_BYTES],
                               struct quantized_module *out, struct err *err) {
    static const char ending[] = ".weight";
    size_t len = strlen(name);
    *config = NULL;
    if (!file_name_ends(name, ending) || len >= NAME_MAX_BYTES) return OK;
    memcpy(module, name, len - strlen(ending));
    module[len - strlen(ending)] = '\0';
    *out = (struct quantized_module){.name = module, .out = shape[0], .in = shape[1]};
    char own_name[NAME_MAX_BYTES] = "";
    bool is_found = false;
    for (int part = 0; part < NUM_MODULE_PARTS; part++) {
        char beside[PART_NAME_BYTES];
        name_part(beside, module, part);
        const struct table_entry *entry = find_entry(weights, beside);
        if (!entry) continue;
        out->parts[part] = entry->tensor;
        if (!is_found) name_in_file(own_name, entry->tensor->name, beside + strlen(module));
        is_found = true;
    }
    if (!is_found) return OK;
    enum status status =
        quantization_config_of(config, &weights->quantization, module, own_name, err);
    bool has_scales = out->parts[PART_WEIGHT_SCALE_INV] || out->parts[PART_WEIGHT_SCALE];
    if (status || !*config) return status;
    const struct tensor *codes = out->parts[PART_WEIGHT];
    *config = quantization_config_kind(*config, codes && codes->dtype == DTYPE_F8_E4M3);
    if ((*config)->method != QUANTIZED_FP8 || has_scales) return status;
    struct expert_place place;
    const struct table_entry *of_all = find_scales_of_all(weights, module, &place);
    if (!of_all) return OK;
    out->parts[PART_WEIGHT_SCALE_INV] = &out->own_scales;
    return expert_stack_scales(&out->own_scales, &place, of_all->tensor, out->out,
                               (*config)->block_rows, err);
}

static bool is_plain(enum dtype dtype) {
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F32;
}

static enum status fail_dtype(const struct tensor *tensor, struct err *err) {
    return err_set(err, ERR_UNSUPPORTED, "%s: tensor \"%.200s\" is %s, want BF16, F16 or F32",
                   tensor->path, tensor->name, dtype_name(tensor->dtype));
}

static enum status take_module(struct weights *weights, struct quantized_module *module,
                               const struct quantization_config *config, struct weight *out,
                               struct err *err) {
    struct owned *owned = add_owned(weights, err);
    if (!owned) return ERR_NOMEM;
    enum status status = quantized_module_open(&owned->reader, module, config, err);
    if (status) return status;
    weights->num_owned++;
    for (int part = 0; part < NUM_MODULE_PARTS && !status; part++) {
        if (!module->is_used[part]) continue;
        struct expert_place place;
        if (module->parts[part] == &module->own_scales) {
            find_scales_of_all(weights, module->name, &place)->used = true;
            continue;
        }
        char beside[PART_NAME_BYTES];
        name_part(beside, module->name, part);
        status = mark_used(find_entry(weights, beside), err);
    }
    out->reader = owned->reader;
    out->dtype = DTYPE_F32;
    return status;
}

// The tensors that have an expert's weight or bias among those of others.
struct stack {
    struct expert_place place;
    struct table_entry *floats; // NULL: the two below
    struct table_entry *blocks, *scales;
};

// False: it is not such a name, or there are no such tensors.
static bool find_stack(const struct weights *weights, const char *name, struct stack *out) {
    *out = (struct stack){0};
    if (weights->expert_layout == EXPERTS_APART) return false;
    if (!expert_place_parse(&out->place, name)) return false;
    out->place.num_experts = weights->num_experts;
    out->place.is_halved = weights->expert_layout == EXPERTS_HALVED;
    const struct table_entry *beside = find_beside(weights, out->place.other_module, "");
    if (beside) out->place.other = beside->tensor;
    out->floats = find_beside(weights, out->place.module, out->place.is_bias ? "_bias" : "");
    if (out->floats || out->place.is_bias) return out->floats != NULL;
    if (weights->quantization.method != QUANTIZED_MXFP4) return false;
    out->blocks = find_beside(weights, out->place.module, "_blocks");
    out->scales = find_beside(weights, out->place.module, "_scales");
    return out->blocks && out->scales;
}

// All experts of a layer take from the same tensors.
static enum status take_stacked(struct weights *weights, const struct stack *stack,
                                struct weight *out, struct err *err) {
    struct owned *owned = add_owned(weights, err);
    if (!owned) return ERR_NOMEM;
    enum status status = OK;
    if (!stack->floats) {
        stack->blocks->used = stack->scales->used = true;
        status = expert_stack_open(&stack->place, stack->blocks->tensor, stack->scales->tensor,
                                   out->shape[0], out->shape[1], &owned->reader, err);
        out->reader = owned->reader;
        out->dtype = DTYPE_F32;
    } else {
        const struct tensor *t = stack->floats->tensor;
        if (!is_plain(t->dtype)) return fail_dtype(t, err);
        stack->floats->used = true;
        out->dtype = t->dtype;
        status = stack->place.is_bias
                     ? expert_stack_bias(&stack->place, t, out->shape[0], &owned->memory, err)
                     : expert_stack_matrix(&stack->place, t, out->shape[0], out->shape[1],
                                           &owned->memory, err);
        out->source = (struct byte_source){.data = owned->memory};
    }
    weights->num_owned++;
    return status;
}

// Whether a matrix is in the format of the configuration. `entry`: the tensor of its name, or NULL.
static bool is_quantized(const struct weights *weights, const struct table_entry *entry) {
    return weights->quantization.method != QUANTIZED_NOT &&
           !(entry && is_plain(entry->tensor->dtype));
}

bool weights_has(const struct weights *weights, const char *name) {
    char module[NAME_MAX_BYTES] = "";
    if (file_name_ends(name, ".weight")) name_in_file(module, name, ".weight");
    return weights->dummy || find_entry(weights, name) ||
           find_beside(weights, module, ".weight_packed") ||
           find_beside(weights, module, ".qweight");
}

bool weights_is_dummy(const struct weights *weights) {
    return weights->dummy;
}

bool weights_has_mlx_convs(const struct weights *weights) {
    return weights->table.has_mlx_convs;
}

enum status weights_form(const struct weights *weights, const char *name, uint64_t rows,
                         uint64_t cols, struct matrix_form *out, struct err *err) {
    const uint64_t shape[2] = {rows, cols};
    char module_name[NAME_MAX_BYTES];
    struct quantized_module module;
    *out = (struct matrix_form){0};
    if (weights->dummy) return dummy_form(weights, name, cols, out, err);
    const struct table_entry *entry = find_entry(weights, name);
    if (entry && entry->tensor->reader) *out = entry->tensor->reader->form;
    if (out->code || !is_quantized(weights, entry)) return OK;
    struct stack stack;
    if (!entry && find_stack(weights, name, &stack)) {
        if (stack.blocks) *out = expert_stack_form(cols);
        return OK;
    }
    const struct quantization_config *config;
    enum status status = find_module(&config, weights, name, shape, module_name, &module, err);
    return status || !config ? status : quantized_module_form(out, &module, config, err);
}

enum status weights_take(struct weights *weights, const char *name, uint32_t rank,
                         const uint64_t *shape, struct weight *out, struct err *err) {
    CHECK(rank == 1 || rank == 2, "rank=%u", rank);
    *out = (struct weight){.dtype = DTYPE_BF16, .rank = rank};
    memcpy(out->shape, shape, rank * sizeof *shape);
    if (weights->dummy) return take_dummy(weights, name, out, err);
    struct table_entry *entry = find_entry(weights, name);
    char module_name[NAME_MAX_BYTES];
    struct quantized_module module;
    const struct quantization_config *config = NULL;
    enum status status = OK;
    if (rank == 2 && is_quantized(weights, entry)) {
        status = find_module(&config, weights, name, shape, module_name, &module, err);
    }
    if (status) return status;
    if (config) return take_module(weights, &module, config, out, err);
    struct stack stack;
    if (!entry && find_stack(weights, name, &stack)) {
        return take_stacked(weights, &stack, out, err);
    }
    if (!entry) {
        char want[SHAPE_TEXT_MAX];
        return err_set(err, ERR_FORMAT,
                       "%s does not have the tensor \"%.200s\" of shape %s, which the model needs",
                       weights->table.set->place, name, shape_text(want, rank, shape));
    }
    const struct tensor *tensor = entry->tensor;
    bool has_reader = tensor->reader && rank == 2;
    if (!has_reader && !is_plain(tensor->dtype)) return fail_dtype(tensor, err);
    status = check_shape(entry, rank, shape, err);
    if (!status) status = mark_used(entry, err);
    if (status) return status;
    if (has_reader) {
        out->reader = tensor->reader;
        out->dtype = DTYPE_F32;
    } else {
        out->source = tensor->source;
        out->dtype = tensor->dtype;
    }
    return OK;
}

// Whether two tensors of one size have the same bytes.
static enum status compare_bytes(const struct tensor *a, const struct tensor *b, bool *same,
                                 struct err *err) {
    enum { CHUNK_BYTES = 1 << 20 };
    char *buffer = malloc(2 * CHUNK_BYTES);
    if (!buffer) return err_nomem(err, "tensors to compare");
    enum status status = OK;
    *same = true;
    for (size_t at = 0; at < a->size_bytes && *same && !status; at += CHUNK_BYTES) {
        size_t left = a->size_bytes - at, len = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        const void *first = byte_source_get(&a->source, at, len, buffer, err);
        const void *second =
            first ? byte_source_get(&b->source, at, len, buffer + CHUNK_BYTES, err) : NULL;
        if (!second) {
            status = ERR_IO;
        } else {
            *same = memcmp(first, second, len) == 0;
        }
    }
    free(buffer);
    return status;
}

// Compares all bytes: a difference in one row is as wrong as in all. The embedding was read before,
// so it is in the page cache.
static enum status check_copy(const struct table_entry *copy, const struct table_entry *original,
                              struct err *err) {
    const struct tensor *a = copy->tensor, *b = original->tensor;
    bool same = a->dtype == b->dtype && a->size_bytes == b->size_bytes;
    enum status status = same ? compare_bytes(a, b, &same, err) : OK;
    if (status || same) return status;
    return err_set(err, ERR_FORMAT,
                   "%s: tensor \"%.100s\" differs from \"%.100s\", but \"tie_word_embeddings\" of "
                   "config.json says that they are the same",
                   a->path, a->name, b->name);
}

enum status weights_ignore_copy(struct weights *weights, const char *name, const char *original,
                                uint32_t rank, const uint64_t *shape, struct err *err) {
    CHECK(rank == 1 || rank == 2, "rank=%u", rank);
    struct table_entry *entry = weights->dummy ? NULL : find_entry(weights, name);
    if (!entry) return OK;
    const struct table_entry *first = find_entry(weights, original);
    if (!first) {
        return err_set(err, ERR_FORMAT,
                       "%s: tensor \"%.100s\" is not quantized as \"%.100s\" is, but "
                       "\"tie_word_embeddings\" of config.json says that they are the same",
                       entry->tensor->path, entry->tensor->name, original);
    }
    CHECK(first->used, "original=%s", original);
    enum status status = check_shape(entry, rank, shape, err);
    if (!status) status = mark_used(entry, err);
    return status ? status : check_copy(entry, first, err);
}

static bool is_of_ignored_layer(const struct weights *weights, const struct table_entry *entry) {
    static const char prefix[] = "model.layers.";
    const char *name = entry->name ? entry->name : entry->tensor->name;
    if (strncmp(name, prefix, strlen(prefix)) != 0) return false;
    uint64_t layer = 0;
    const char *p = name + strlen(prefix), *digits = p;
    for (; *p >= '0' && *p <= '9' && layer < UINT32_MAX; p++) {
        layer = 10 * layer + (uint64_t)(*p - '0');
    }
    return p > digits && *p == '.' && layer >= weights->first_ignored &&
           layer - weights->first_ignored < weights->num_ignored;
}

enum status weights_finish(const struct weights *weights, struct err *err) {
    const struct table_entry *first = NULL;
    size_t more = 0;
    enum status status = OK;
    for (size_t i = 0; i < weights->table.count && !status; i++) {
        const struct table_entry *entry = &weights->table.entries[i];
        bool is_spare = false;
        if (entry->used || is_of_ignored_layer(weights, entry)) continue;
        if (weights->has_other_parts && entry->is_other_part) continue;
        status = spare_tensor_check(&is_spare, entry->tensor, &weights->quantization, err);
        if (is_spare) continue;
        if (first) more++;
        if (!first) first = entry;
    }
    struct tensor_set *set = weights->table.set;
    if (!status && set) status = set->check_unchanged(set, err);
    if (status || !first) return status;
    char text[SHAPE_TEXT_MAX], others[64] = "";
    if (more) snprintf(others, sizeof others, " (and %zu more)", more);
    return err_set(err, ERR_FORMAT,
                   "%s has the tensor \"%.150s\" of shape %s%s, which the model does not use",
                   first->tensor->path, first->tensor->name,
                   shape_text(text, first->tensor->rank, first->tensor->shape), others);
}

enum status weights_fingerprint(const struct weights *weights, uint64_t *out, struct err *err) {
    enum status status = OK;
    *out = weights->table.count;
    for (size_t i = 0; i < weights->table.count && !status; i++) {
        status = tensor_hash(weights->table.entries[i].tensor, out, err);
    }
    return status;
}
