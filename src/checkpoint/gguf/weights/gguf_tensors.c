/* The tensors of a GGUF model, as checkpoints have them: experts one by one, and the heads of gated
 * delta nets in their order. Plain tensors are read from the file as they are; matrices in blocks,
 * and those with heads in another order, have a reader. Such vectors are copied. */
#include "checkpoint/gguf/weights/gguf_tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/os/file.h"
#include "base/os/map.h"
#include "checkpoint/gguf/file/gguf_files.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/weights/gguf_matrix.h"
#include "checkpoint/gguf/weights/gguf_names.h"
#include "checkpoint/tensor.h"

enum { TENSORS_MAX = 1 << 20, NAME_BYTES = 320 };

struct gguf_tensors {
    struct tensor_set base;
    struct gguf_files files;
    struct gguf_model model;
    struct arena arena; // names and copied vectors
    struct tensor *tensors; // [capacity]
    struct gguf_matrix *matrices; // [capacity], of the tensors
    size_t capacity;
    struct strmap names;
};

// Tensors of the rotation: the configuration has their values (gguf_config.c).
static bool is_in_config(struct gguf_string name) {
    return gguf_string_is(name, "rope_freqs.weight") ||
           gguf_string_is(name, "rope_factors_long.weight") ||
           gguf_string_is(name, "rope_factors_short.weight");
}

// Where a matrix has factors: NVFP4 has one for all of its elements in "NAME.scale", or one for
// each expert. NULL: `weight` has none, or a tensor of that name is something else in this model.
static const struct gguf_tensor *find_factors(const struct gguf_tensors *set,
                                              const struct gguf_tensor *weight) {
    static const char ending[] = ".weight";
    struct gguf_place place;
    char name[sizeof place.name];
    size_t end = weight->name.len, len = strlen(ending);
    if (weight->rank < 2 || end < len || end >= sizeof name ||
        memcmp(weight->name.text + end - len, ending, len) != 0) {
        return NULL;
    }
    snprintf(name, sizeof name, "%.*s.scale", (int)(end - len), weight->name.text);
    gguf_name_tensor(&set->model, (struct gguf_string){name, strlen(name)}, &place);
    return strcmp(place.name, name) == 0 ? gguf_files_find(&set->files, name) : NULL;
}

// Whether a tensor has factors of a matrix, or those of the rounding of its inputs, which are not
// rounded here.
static bool is_factors(const struct gguf_tensors *set, const struct gguf_tensor *tensor) {
    static const char *const endings[] = {".scale", ".input_scale"};
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        size_t len = strlen(endings[i]), end = tensor->name.len;
        char name[NAME_BYTES];
        if (end < len || end >= sizeof name - len) continue;
        if (memcmp(tensor->name.text + end - len, endings[i], len) != 0) continue;
        snprintf(name, sizeof name, "%.*s.weight", (int)(end - len), tensor->name.text);
        const struct gguf_tensor *weight = gguf_files_find(&set->files, name);
        if (!weight) continue;
        if (i == 1 || find_factors(set, weight) == tensor) return true;
    }
    return false;
}

// The factor of a matrix, number `index` of `count`.
static enum status read_factor(const struct gguf_tensors *set, const struct gguf_tensor *factors,
                               uint64_t index, uint64_t count, float *out, struct err *err) {
    if (factors->type->dtype != DTYPE_F32 || factors->size_bytes != count * sizeof *out) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.*s\" is not %llu numbers in F32",
                       set->base.place, (int)factors->name.len, factors->name.text,
                       (unsigned long long)count);
    }
    const void *bytes =
        byte_source_get(&factors->source, index * sizeof *out, sizeof *out, out, err);
    if (!bytes) return ERR_IO;
    if (bytes != out) memcpy(out, bytes, sizeof *out);
    if (isfinite(*out)) return OK;
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.*s\" has a factor that is no number",
                   set->base.place, (int)factors->name.len, factors->name.text);
}

static enum status count_tensors(struct gguf_tensors *set, struct err *err) {
    uint64_t count = 0;
    for (size_t i = 0; i < set->files.num_files; i++) {
        const struct gguf *gguf = set->files.files[i];
        for (size_t k = 0; k < gguf_num_tensors(gguf) && count <= TENSORS_MAX; k++) {
            const struct gguf_tensor *tensor = gguf_tensor(gguf, k);
            struct gguf_place place;
            gguf_name_tensor(&set->model, tensor->name, &place);
            uint64_t parts = tensor->rank > 1 && place.expert_part ? tensor->shape[0] : 1;
            if (place.second_part && parts < TENSORS_MAX) parts *= 2;
            count += parts < TENSORS_MAX ? parts : TENSORS_MAX + 1u;
        }
    }
    if (count > TENSORS_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%s has more than %d tensors",
                       gguf_path(set->files.files[0]), TENSORS_MAX);
    }
    set->capacity = (size_t)count;
    set->tensors = calloc(set->capacity + 1, sizeof *set->tensors);
    set->matrices = calloc(set->capacity + 1, sizeof *set->matrices);
    set->base.tensors = calloc(set->capacity + 1, sizeof *set->base.tensors);
    if (!set->tensors || !set->matrices || !set->base.tensors) {
        return err_nomem(err, "tensor list");
    }
    return strmap_reserve(&set->names, set->capacity, err);
}

static enum status bad_shape(const struct gguf *gguf, const struct gguf_tensor *tensor,
                             const char *want, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.*s\" has %u dimensions, want %s",
                   gguf_path(gguf), (int)tensor->name.len, tensor->name.text, tensor->rank, want);
}

// Copies a vector whose elements are stored in another order.
static enum status copy_vector(struct gguf_tensors *set, struct tensor *tensor,
                               const struct gguf_order *order, struct err *err) {
    size_t count = (size_t)tensor->shape[0], size = dtype_size(tensor->dtype);
    char *copy = arena_alloc(&set->arena, 2 * tensor->size_bytes);
    if (!copy) return err_nomem(err, "a bias");
    const char *bytes =
        byte_source_get(&tensor->source, 0, tensor->size_bytes, copy + tensor->size_bytes, err);
    if (!bytes) return ERR_IO;
    for (size_t i = 0; i < count; i++) {
        size_t from = (size_t)gguf_stored_at(order, i);
        memcpy(copy + i * size, bytes + from * size, size);
    }
    tensor->source = (struct byte_source){.data = copy};
    return OK;
}

// Copies a norm's weights that are stored with 1 added.
static enum status copy_norm(struct gguf_tensors *set, struct tensor *tensor, struct err *err) {
    size_t count = (size_t)tensor->shape[0];
    if (tensor->dtype != DTYPE_F32) {
        return err_set(err, ERR_UNSUPPORTED, "%s: tensor \"%.150s\" is %s, want F32", tensor->path,
                       tensor->name, dtype_name(tensor->dtype));
    }
    float *copy = arena_alloc(&set->arena, 2 * tensor->size_bytes);
    if (!copy) return err_nomem(err, "a norm");
    const void *bytes = byte_source_get(&tensor->source, 0, tensor->size_bytes, copy + count, err);
    if (!bytes) return ERR_IO;
    memcpy(copy, bytes, tensor->size_bytes);
    for (size_t i = 0; i < count; i++) copy[i] -= 1;
    tensor->source = (struct byte_source){.data = (const char *)copy};
    return OK;
}

// Sets the reader of a matrix that needs one. factor NULL: it has none.
static enum status set_reader(struct gguf_tensors *set, const struct gguf_tensor *from,
                              const struct gguf_place *place, const float *factor,
                              struct tensor *tensor, struct err *err) {
    bool is_plain = from->type->dtype != DTYPE_NONE;
    uint64_t cols = tensor->rank > 1 ? tensor->shape[1] : 1;
    if (!place->rows.run && !place->cols.run && is_plain && !factor) return OK;
    if (!gguf_order_fits(&place->rows, tensor->shape[0]) || !gguf_order_fits(&place->cols, cols)) {
        return err_set(err, ERR_FORMAT,
                       "%s: tensor \"%.150s\" has %llu rows of %llu, want the model's heads",
                       tensor->path, tensor->name, (unsigned long long)tensor->shape[0],
                       (unsigned long long)cols);
    }
    if (tensor->rank == 1) {
        if (place->rows.run && file_name_ends(tensor->name, ".weight")) {
            return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" is a vector, want a matrix",
                           tensor->path, tensor->name);
        }
        if (is_plain) return copy_vector(set, tensor, &place->rows, err);
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.150s\" is a vector of type %s, want F32, F16 or BF16",
                       tensor->path, tensor->name, from->type->name);
    }
    struct gguf_matrix *matrix = &set->matrices[set->base.count];
    *matrix = (struct gguf_matrix){.type = from->type,
                                   .source = tensor->source,
                                   .cols = cols,
                                   .has_factor = factor != NULL,
                                   .factor = factor ? *factor : 1,
                                   .row_order = place->rows,
                                   .col_order = place->cols};
    gguf_matrix_init(matrix);
    tensor->reader = &matrix->base;
    return OK;
}

// Adds a tensor, or one expert's part of it: `part` of `num_parts` equal ones; 0: the whole.
static enum status add(struct gguf_tensors *set, const struct gguf *gguf,
                       const struct gguf_tensor *from, const char *name,
                       const struct gguf_place *place, uint64_t part, uint64_t num_parts,
                       struct err *err) {
    CHECK(set->base.count < set->capacity, "count=%zu", set->base.count);
    struct tensor *tensor = &set->tensors[set->base.count];
    uint32_t skip = num_parts > 0;
    uint64_t size = num_parts ? from->size_bytes / num_parts : from->size_bytes;
    *tensor = (struct tensor){
        .name = arena_strndup(&set->arena, name, strlen(name)),
        .path = gguf_path(gguf),
        .dtype = from->type->dtype == DTYPE_NONE ? DTYPE_U8 : from->type->dtype,
        .rank = from->rank - skip,
        .size_bytes = (size_t)size,
        .source = byte_source_skip(from->source, part * size),
    };
    if (!tensor->name) return err_nomem(err, "tensor names");
    memcpy(tensor->shape, from->shape + skip, tensor->rank * sizeof *tensor->shape);
    if (place->second_part) tensor->shape[0] /= 2;
    if (place->is_row && tensor->rank == 1) {
        tensor->rank = 2;
        tensor->shape[1] = tensor->shape[0];
        tensor->shape[0] = 1;
    }
    if (place->is_vector && tensor->rank == 2) {
        tensor->rank = 1;
        tensor->shape[0] *= tensor->shape[1];
    }
    bool existed = false;
    enum status status = strmap_put(&set->names, tensor->name, strlen(tensor->name),
                                    (uint32_t)set->base.count, &existed, err);
    if (!status && existed) {
        status =
            err_set(err, ERR_FORMAT, "%s: two tensors are \"%.150s\"", tensor->path, tensor->name);
    }
    bool is_norm = tensor->rank == 1 && file_name_ends(name, "norm.weight");
    if (!status && is_norm && set->model.has_norms_plus_one && !place->is_as_stored) {
        status = copy_norm(set, tensor, err);
    } else if (!status) {
        const struct gguf_tensor *factors = find_factors(set, from);
        uint64_t per_expert = place->second_part ? 2 : 1;
        float factor = 1;
        if (factors) {
            status = read_factor(set, factors, part / per_expert,
                                 num_parts ? num_parts / per_expert : 1, &factor, err);
        }
        if (!status) status = set_reader(set, from, place, factors ? &factor : NULL, tensor, err);
    }
    if (!status) set->base.tensors[set->base.count++] = tensor;
    return status;
}

static enum status add_experts(struct gguf_tensors *set, const struct gguf *gguf,
                               const struct gguf_tensor *tensor, const struct gguf_place *place,
                               struct err *err) {
    if (tensor->rank != (place->is_bias ? 2 : 3)) {
        return bad_shape(gguf, tensor, place->is_bias ? "2" : "3", err);
    }
    const char *const parts[] = {place->expert_part, place->second_part};
    const char *ending = place->is_bias ? "bias" : "weight";
    uint64_t num_parts = place->second_part ? 2 : 1, count = tensor->shape[0] * num_parts;
    if (tensor->shape[1] % num_parts) {
        return err_set(err, ERR_FORMAT,
                       "%s: tensor \"%.*s\" has %llu rows for each expert, want two equal parts",
                       gguf_path(gguf), (int)tensor->name.len, tensor->name.text,
                       (unsigned long long)tensor->shape[1]);
    }
    enum status status = OK;
    for (uint64_t i = 0; i < count && !status; i++) {
        char name[sizeof place->name + 64];
        snprintf(name, sizeof name, "%s.%llu.%s.%s", place->name,
                 (unsigned long long)(i / num_parts), parts[i % num_parts], ending);
        status = add(set, gguf, tensor, name, place, i, count, err);
    }
    return status;
}

static enum status add_file(struct gguf_tensors *set, const struct gguf *gguf, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < gguf_num_tensors(gguf) && !status; i++) {
        const struct gguf_tensor *tensor = gguf_tensor(gguf, i);
        struct gguf_place place;
        if (is_in_config(tensor->name) || is_factors(set, tensor)) continue;
        gguf_name_tensor(&set->model, tensor->name, &place);
        if (place.expert_part) {
            status = add_experts(set, gguf, tensor, &place, err);
        } else if (tensor->rank > 2) {
            status = bad_shape(gguf, tensor, "1 or 2", err);
        } else {
            status = add(set, gguf, tensor, place.name, &place, 0, 0, err);
        }
    }
    return status;
}

static enum status check_unchanged(const struct tensor_set *base, struct err *err) {
    const struct gguf_tensors *set = (const struct gguf_tensors *)base;
    enum status status = OK;
    for (size_t i = 0; i < set->files.num_files && !status; i++) {
        status = gguf_check_unchanged(set->files.files[i], err);
    }
    return status;
}

static void close_tensors(struct tensor_set *base) {
    struct gguf_tensors *set = (struct gguf_tensors *)base;
    strmap_fini(&set->names);
    free(set->base.tensors);
    free(set->tensors);
    free(set->matrices);
    arena_fini(&set->arena);
    gguf_files_close(&set->files);
    free(set);
}

enum status gguf_tensors_take(struct gguf_files *files, struct tensor_set **out, struct err *err) {
    *out = NULL;
    struct gguf_tensors *set = calloc(1, sizeof *set);
    if (!set) {
        gguf_files_close(files);
        return err_nomem(err, "weights");
    }
    set->base.check_unchanged = check_unchanged;
    set->base.close = close_tensors;
    set->files = *files;
    *files = (struct gguf_files){0};
    set->base.place = gguf_path(set->files.files[0]);
    enum status status = gguf_model_read(&set->model, set->files.files[0], err);
    if (!status) status = count_tensors(set, err);
    for (size_t i = 0; i < set->files.num_files && !status; i++) {
        status = add_file(set, set->files.files[i], err);
    }
    if (status) {
        close_tensors(&set->base);
        return status;
    }
    *out = &set->base;
    return OK;
}

enum status gguf_tensors_open(const char *path, struct tensor_set **out, struct err *err) {
    struct gguf_files files;
    *out = NULL;
    enum status status = gguf_files_open(&files, path, err);
    return status ? status : gguf_tensors_take(&files, out, err);
}
