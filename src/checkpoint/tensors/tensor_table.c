#include "checkpoint/tensors/tensor_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/os/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/text_part.h"

enum {
    NAME_MAX_BYTES = 256,
    SLICES_MAX = 1 << 20, // of all layers; Kimi K2 has 207,360
};

// In names of MLX's tensors of several parts. Each part has the same name with `before`, the part's
// number, a dot and `behind` in place of this. The first that is in a name counts.
struct stack {
    const char *infix, *before, *behind;
};

static const struct stack stacks[] = {
    {".switch_mlp.fc1.", ".experts.", "up_proj."}, // experts without a gate
    {".switch_mlp.fc2.", ".experts.", "down_proj."},
    {".switch_mlp.", ".experts.", ""},
    {".experts.switch_glu.", ".experts.", ""},
    {".experts.gate_proj.", ".experts.", "gate_proj."},
    {".experts.up_proj.", ".experts.", "up_proj."},
    {".experts.down_proj.", ".experts.", "down_proj."},
    {".embed_q.", ".kv_b_heads.", "key."},
    {".unembed_out.", ".kv_b_heads.", "value."},
};

static const struct stack *find_stack(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(stacks); i++) {
        if (strstr(name, stacks[i].infix)) return &stacks[i];
    }
    return NULL;
}

// How many parts the tensor has one after another; 0: it is of no such kind.
static uint64_t num_parts(const struct tensor *t) {
    uint32_t rank = file_name_ends(t->name, ".bias")           ? 2
                    : file_name_ends(t->name, ".global_scale") ? 1
                                                               : 3;
    bool is_stack = find_stack(t->name) && t->rank == rank && t->shape[0] && t->size_bytes &&
                    strlen(t->name) + 2 * TEXT_PART_GROWS < NAME_MAX_BYTES;
    return is_stack ? t->shape[0] : 0;
}

// The name of a part's tensor, from that of all. It has a stack's infix.
static char *part_name(const char *name, uint64_t part) {
    const struct stack *stack = find_stack(name);
    char out[NAME_MAX_BYTES + 32];
    const char *at = strstr(name, stack->infix);
    snprintf(out, sizeof out, "%.*s%s%llu.%s%s", (int)(at - name), name, stack->before,
             (unsigned long long)part, stack->behind, at + strlen(stack->infix));
    return strdup(out);
}

// Puts the tensor into the map under the name that it has in a text model. `part`: its number, of
// a tensor's parts, or NULL.
static enum status name_entry(struct tensor_table *table, uint32_t index, const uint64_t *part,
                              struct err *err) {
    struct table_entry *entry = &table->entries[index];
    const char *name = entry->tensor->name;
    char canonical[NAME_MAX_BYTES];
    entry->is_other_part = !text_part_tensor_name(name, canonical, sizeof canonical);
    bool is_renamed = !entry->is_other_part && strlen(name) + TEXT_PART_GROWS < sizeof canonical &&
                      strcmp(canonical, name) != 0;
    if (is_renamed || part) {
        // Without its prefix a name may lack the dot before "switch_mlp".
        bool is_usable = is_renamed && (!part || find_stack(canonical));
        const char *from = is_usable ? canonical : name;
        entry->name = part ? part_name(from, *part) : strdup(from);
        if (!entry->name) return err_nomem(err, "tensor list");
        name = entry->name;
    }
    bool existed = false;
    enum status status = strmap_put(&table->by_name, name, strlen(name), index, &existed, err);
    if (status || !existed) return status;
    return err_set(err, ERR_FORMAT, "%s has the tensor \"%.150s\" under two names",
                   entry->tensor->path, name);
}

static enum status add_parts(struct tensor_table *table, const struct tensor *t, uint64_t count,
                             struct err *err) {
    enum status status = OK;
    for (uint64_t part = 0; part < count && !status; part++) {
        struct tensor *slice = &table->slices[table->num_slices++];
        *slice = *t;
        slice->rank = t->rank > 1 ? t->rank - 1 : 1; // a part's number is a vector
        slice->shape[0] = 1;
        memcpy(slice->shape, t->shape + 1, (t->rank - 1) * sizeof *t->shape);
        slice->size_bytes = t->size_bytes / count;
        slice->begin = t->begin + part * slice->size_bytes;
        slice->source = byte_source_skip(t->source, part * slice->size_bytes);
        uint32_t index = (uint32_t)table->count++;
        table->entries[index].tensor = slice;
        status = name_entry(table, index, &part, err);
    }
    return status;
}

// Whether it is a convolution's weights [channels][width][1].
static bool is_mlx_conv(const struct tensor *t) {
    return file_name_ends(t->name, ".conv1d.weight") && t->rank == 3 && t->shape[1] > 1 &&
           t->shape[2] == 1;
}

static enum status list_entries(struct tensor_table *table, struct err *err) {
    const struct tensor_set *set = table->set;
    size_t num_slices = 0, count = set->count;
    for (size_t i = 0; i < set->count; i++) {
        uint64_t parts = num_parts(set->tensors[i]);
        if (parts > SLICES_MAX - num_slices) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: tensor \"%.150s\" has %llu parts, want at most %d of all layers",
                           set->tensors[i]->path, set->tensors[i]->name, (unsigned long long)parts,
                           SLICES_MAX);
        }
        num_slices += parts;
        count += parts ? parts - 1 : 0;
    }
    table->slices = calloc(num_slices + 1, sizeof *table->slices);
    table->entries = calloc(count + 1, sizeof *table->entries);
    if (!table->slices || !table->entries) return err_nomem(err, "tensor list");
    enum status status = strmap_reserve(&table->by_name, count, err);
    for (size_t i = 0; i < set->count && !status; i++) {
        const struct tensor *t = set->tensors[i];
        uint64_t parts = num_parts(t);
        if (parts) {
            status = add_parts(table, t, parts, err);
            continue;
        }
        table->entries[table->count++].tensor = t;
        status = name_entry(table, (uint32_t)(table->count - 1), NULL, err);
        bool is_other_part = table->entries[table->count - 1].is_other_part;
        table->has_mlx_convs = table->has_mlx_convs || (!is_other_part && is_mlx_conv(t));
    }
    return status;
}

enum status tensor_table_open(struct tensor_table *table, const struct checkpoint *checkpoint,
                              struct err *err) {
    enum status status = checkpoint_open_tensors(checkpoint, &table->set, err);
    return status ? status : list_entries(table, err);
}

void tensor_table_close(struct tensor_table *table) {
    strmap_fini(&table->by_name);
    for (size_t i = 0; i < table->count; i++) free(table->entries[i].name);
    free(table->entries);
    free(table->slices);
    if (table->set) table->set->close(table->set);
    *table = (struct tensor_table){0};
}

// MLX's name for what a published checkpoint calls `name`. False: it is the same.
static bool mlx_name(const char *name, char out[NAME_MAX_BYTES]) {
    static const char *const others[][2] = {
        {".w1.", ".gate_proj."},
        {".w2.", ".down_proj."},
        {".w3.", ".up_proj."},
        {".shared_mlp.", ".mlp."},
        {".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"},
        {".block_sparse_moe.", ".block_sparse_moe.experts."},
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        const char *at = strstr(name, others[i][0]);
        if (!at) continue;
        int len = snprintf(out, NAME_MAX_BYTES, "%.*s%s%s", (int)(at - name), name, others[i][1],
                           at + strlen(others[i][0]));
        return len < NAME_MAX_BYTES;
    }
    return false;
}

struct table_entry *tensor_table_find(const struct tensor_table *table, const char *name) {
    uint32_t index;
    char other[NAME_MAX_BYTES];
    if (strmap_get(&table->by_name, name, strlen(name), &index)) return &table->entries[index];
    if (!mlx_name(name, other)) return NULL;
    if (!strmap_get(&table->by_name, other, strlen(other), &index)) return NULL;
    return &table->entries[index];
}
