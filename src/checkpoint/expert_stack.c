#include "checkpoint/expert_stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/quantized/quantized_matrix.h"

bool expert_place_parse(struct expert_place *out, const char *name) {
    static const char infix[] = ".experts.";
    static const struct {
        const char *name;
        uint32_t part, num_parts;
    } parts[] = {{"gate_proj", 0, 2}, {"w1", 0, 2},        {"up_proj", 1, 2},
                 {"w3", 1, 2},        {"down_proj", 0, 1}, {"w2", 0, 1}};
    static const char *const modules[] = {"down_proj", "gate_up_proj"};
    const char *at = strstr(name, infix);
    if (!at) return false;
    int prefix = (int)(at - name) + (int)strlen(infix);
    char *end = NULL;
    unsigned long expert = strtoul(name + prefix, &end, 10);
    if (end == name + prefix || *end != '.' || expert > UINT16_MAX) return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t len = strlen(parts[i].name);
        if (strncmp(end + 1, parts[i].name, len) != 0) continue;
        bool is_bias = strcmp(end + 1 + len, ".bias") == 0;
        if (!is_bias && strcmp(end + 1 + len, ".weight") != 0) return false;
        *out = (struct expert_place){.expert = (uint32_t)expert,
                                     .part = parts[i].part,
                                     .num_parts = parts[i].num_parts,
                                     .is_bias = is_bias};
        uint32_t own = out->num_parts - 1;
        int written =
            snprintf(out->module, sizeof out->module, "%.*s%s", prefix, name, modules[own]);
        int other = snprintf(out->other_module, sizeof out->other_module, "%.*s%s", prefix, name,
                             modules[1 - own]);
        return written > 0 && other > 0 && written < EXPERT_MODULE_BYTES &&
               other < EXPERT_MODULE_BYTES;
    }
    return false;
}

// `shape` [rank]; the first is the number of experts, which `place` has.
static enum status check(const struct expert_place *place, const struct tensor *t, uint32_t rank,
                         const uint64_t *shape, struct err *err) {
    bool is_good = t->rank == rank && t->shape[0] == place->num_experts;
    for (uint32_t i = 1; i < rank && is_good; i++) is_good = t->shape[i] == shape[i];
    if (is_good && place->expert < place->num_experts) return OK;
    char want[100] = "", found[100] = "";
    size_t at = 0, there = 0;
    for (uint32_t i = 1; i < rank; i++) {
        at += (size_t)snprintf(want + at, sizeof want - at, "[%llu]", (unsigned long long)shape[i]);
    }
    for (uint32_t i = 0; i < t->rank && i < 4; i++) {
        there += (size_t)snprintf(found + there, sizeof found - there, "[%llu]",
                                  (unsigned long long)t->shape[i]);
    }
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has the shape %s, want [%u experts]%s",
                   t->path, t->name, found, place->num_experts, want);
}

// to[r][c] = from[c][num_parts r + part], or from[c][rows part + r] of halves. `TURNED` rows of
// `from` at a time become whole lines of the cache.
static enum status turn_round(const struct expert_place *place, const struct byte_source *from,
                              uint64_t rows, uint64_t cols, size_t size, char *to,
                              struct err *err) {
    enum { TURNED = 64 };
    uint64_t step = place->is_halved ? 1 : place->num_parts;
    uint64_t start = place->is_halved ? rows * place->part : place->part;
    size_t row_bytes = rows * place->num_parts * size;
    char *buffer = malloc(TURNED * row_bytes);
    if (!buffer) return err_nomem(err, "experts");
    enum status status = OK;
    for (uint64_t c = 0; c < cols && !status; c += TURNED) {
        uint64_t left = cols - c, count = left < TURNED ? left : TURNED;
        const char *bytes = byte_source_get(from, c * row_bytes, count * row_bytes, buffer, err);
        if (!bytes) status = ERR_IO;
        for (uint64_t r = 0; bytes && r < rows; r++) {
            const char *first = bytes + (r * step + start) * size;
            for (uint64_t k = 0; k < count; k++) {
                memcpy(to + (r * cols + c + k) * size, first + k * row_bytes, size);
            }
        }
    }
    free(buffer);
    return status;
}

// Copies rows of the expert, which are not transposed.
static enum status copy_rows(const struct expert_place *place, const struct byte_source *from,
                             size_t bytes, char *to, struct err *err) {
    const char *found = byte_source_get(from, place->part * bytes, bytes, to, err);
    if (found && found != to) memcpy(to, found, bytes);
    return found ? OK : ERR_IO;
}

enum status expert_stack_matrix(const struct expert_place *place, const struct tensor *t,
                                uint64_t rows, uint64_t cols, void **memory, struct err *err) {
    uint64_t all_rows = rows * place->num_parts;
    bool has_rows = place->is_halved && t->rank == 3 && t->shape[1] == all_rows;
    if (has_rows && all_rows == cols) {
        if (!place->other || place->other->rank != 3) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: the shape of tensor \"%.150s\" does not tell rows from columns",
                           t->path, t->name);
        }
        uint64_t other_rows = place->num_parts == 1 ? 2 * cols : cols; // see expert_stack.h
        has_rows = place->other->shape[1] == other_rows;
    }
    const uint64_t shape[] = {0, has_rows ? all_rows : cols, has_rows ? cols : all_rows};
    size_t size = dtype_size(t->dtype), expert_bytes = all_rows * cols * size;
    enum status status = check(place, t, ARRAY_LEN(shape), shape, err);
    if (status) return status;
    *memory = malloc(rows * cols * size);
    if (!*memory) return err_nomem(err, "experts");
    const struct byte_source expert = byte_source_skip(t->source, place->expert * expert_bytes);
    if (has_rows) return copy_rows(place, &expert, rows * cols * size, *memory, err);
    return turn_round(place, &expert, rows, cols, size, *memory, err);
}

enum status expert_stack_bias(const struct expert_place *place, const struct tensor *t,
                              uint64_t count, void **memory, struct err *err) {
    const uint64_t shape[] = {0, count * place->num_parts};
    size_t size = dtype_size(t->dtype), row_bytes = shape[1] * size;
    enum status status = check(place, t, ARRAY_LEN(shape), shape, err);
    if (status) return status;
    char *buffer = malloc(row_bytes);
    *memory = malloc(count * size);
    const char *bytes = NULL;
    if (!buffer || !*memory) {
        status = err_nomem(err, "biases of experts");
    } else {
        bytes = byte_source_get(&t->source, place->expert * row_bytes, row_bytes, buffer, err);
        if (!bytes) status = ERR_IO;
    }
    for (uint64_t i = 0; bytes && i < count; i++) {
        size_t at = i * place->num_parts + place->part;
        memcpy((char *)*memory + i * size, bytes + at * size, size);
    }
    free(buffer);
    return status;
}

enum status expert_stack_scales(struct tensor *out, const struct expert_place *place,
                                const struct tensor *t, uint64_t rows, uint32_t block_rows,
                                struct err *err) {
    // Without blocks gate and up have one scale together.
    uint64_t num_parts = block_rows ? place->num_parts : 1, part = block_rows ? place->part : 0;
    uint64_t num_blocks = block_rows ? (rows + block_rows - 1) / block_rows : 1;
    if (t->rank != 3 || t->shape[0] != place->num_experts || place->expert >= place->num_experts ||
        t->shape[1] != num_parts * num_blocks) {
        return err_set(
            err, ERR_FORMAT,
            "%s: tensor \"%.150s\" of rank %u is [%llu][%llu]..., want [%u experts][%llu]"
            "[groups]",
            t->path, t->name, t->rank, (unsigned long long)t->shape[0],
            (unsigned long long)t->shape[1], place->num_experts,
            (unsigned long long)(num_parts * num_blocks));
    }
    if (num_parts > 1 && rows % block_rows) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.150s\" has scales of blocks that are of two matrices, which "
                       "is not supported",
                       t->path, t->name);
    }
    size_t part_bytes = num_blocks * t->shape[2] * dtype_size(t->dtype);
    *out = *t;
    out->rank = 2;
    out->shape[0] = num_blocks;
    out->shape[1] = t->shape[2];
    out->size_bytes = part_bytes;
    out->source = byte_source_skip(t->source, (place->expert * num_parts + part) * part_bytes);
    return OK;
}

enum { GROUP = 32, BLOCK_BYTES = GROUP / 2 }; // of MXFP4

struct matrix_form expert_stack_form(uint64_t cols) {
    return (struct matrix_form){.code = WEIGHT_CODE_E2M1, .group = cols > GROUP ? GROUP : 0};
}

enum status expert_stack_open(const struct expert_place *place, const struct tensor *blocks,
                              const struct tensor *scales, uint64_t rows, uint64_t cols,
                              struct matrix_reader **out, struct err *err) {
    uint64_t all_rows = rows * place->num_parts, groups = cols / GROUP;
    const uint64_t shape[] = {0, all_rows, groups, BLOCK_BYTES};
    *out = NULL;
    if (cols % GROUP || blocks->dtype != DTYPE_U8 || scales->dtype != DTYPE_U8) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensors \"%.150s\" and \"%.150s\" are %s and %s for %llu inputs, want "
                       "U8 and a multiple of %d",
                       blocks->path, blocks->name, scales->name, dtype_name(blocks->dtype),
                       dtype_name(scales->dtype), (unsigned long long)cols, GROUP);
    }
    enum status status = check(place, blocks, 4, shape, err);
    if (!status) status = check(place, scales, 3, shape, err);
    if (status) return status;
    struct quantized_matrix matrix = {
        .name = blocks->name,
        .path = blocks->path,
        .code = CODE_E2M1,
        .rows = rows,
        .cols = cols,
        .codes = byte_source_skip(blocks->source,
                                  (place->expert * all_rows + place->part) * groups * BLOCK_BYTES),
        .row_bytes = place->num_parts * groups * BLOCK_BYTES,
        .block_rows = 1,
        .block_cols = GROUP,
        .num_groups = groups,
        .form = expert_stack_form(cols)};
    size_t bytes = all_rows * groups;
    uint8_t *buffer = malloc(bytes);
    matrix.scales = malloc(rows * groups * sizeof(float));
    const uint8_t *exponents = NULL;
    if (!buffer || !matrix.scales) {
        status = err_nomem(err, "scales of experts");
    } else {
        exponents = byte_source_get(&scales->source, place->expert * bytes, bytes, buffer, err);
        if (!exponents) status = ERR_IO;
    }
    for (uint64_t i = 0; exponents && i < rows * groups && !status; i++) {
        uint64_t row = i / groups * place->num_parts + place->part;
        uint8_t exponent = exponents[row * groups + i % groups];
        matrix.scales[i] = ldexpf(1, exponent - 127);
        if (exponent != 255) continue;
        status = err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a scale that is no number",
                         scales->path, scales->name);
    }
    free(buffer);
    if (!status) return quantized_matrix_open(out, &matrix, err);
    quantized_matrix_fini(&matrix);
    return status;
}
