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

static const char switch_infix[] = ".switch_mlp.";

// How many experts the tensor has one after another; 0: it is of no such kind.
static uint64_t num_experts(const struct tensor *t) {
    bool is_stack = strstr(t->name, switch_infix) && t->rank == 3 && t->shape[0] && t->size_bytes &&
                    strlen(t->name) + 2 * TEXT_PART_GROWS < NAME_MAX_BYTES;
    return is_stack ? t->shape[0] : 0;
}

// The name of one expert's tensor, from that of all.
static char *expert_name(const char *name, uint64_t expert) {
    static const char *const others[][2] = {
        {"gate_proj.", "w1."}, {"up_proj.", "w3."}, {"down_proj.", "w2."}};
    char out[NAME_MAX_BYTES + 32], prefix[NAME_MAX_BYTES];
    const char *at = strstr(name, switch_infix), *part = at + strlen(switch_infix);
    const char *short_part = "";
    snprintf(prefix, sizeof prefix, "%.*s", (int)(at - name), name);
    bool is_short =
        file_name_ends(prefix, ".block_sparse_moe") || file_name_ends(prefix, ".feed_forward");
    for (size_t i = 0; i < ARRAY_LEN(others) && is_short; i++) {
        if (strncmp(part, others[i][0], strlen(others[i][0])) != 0) continue;
        part += strlen(others[i][0]);
        short_part = others[i][1];
        break;
    }
    snprintf(out, sizeof out, "%s.experts.%llu.%s%s", prefix, (unsigned long long)expert,
             short_part, part);
    return strdup(out);
}

// Puts the tensor into the map under the name that it has in a text model. `expert`: the number of
// the expert that the tensor belongs to, or NULL.
static enum status name_entry(struct tensor_table *table, uint32_t index, const uint64_t *expert,
                              struct err *err) {
    struct table_entry *entry = &table->entries[index];
    const char *name = entry->tensor->name;
    char canonical[NAME_MAX_BYTES];
    entry->is_other_part = !text_part_tensor_name(name, canonical, sizeof canonical);
    bool is_renamed = !entry->is_other_part && strlen(name) + TEXT_PART_GROWS < sizeof canonical &&
                      strcmp(canonical, name) != 0;
    if (is_renamed || expert) {
        // Without its prefix a name may lack the dot before "switch_mlp".
        bool is_usable = is_renamed && (!expert || strstr(canonical, switch_infix));
        const char *from = is_usable ? canonical : name;
        entry->name = expert ? expert_name(from, *expert) : strdup(from);
        if (!entry->name) return err_nomem(err, "tensor list");
        name = entry->name;
    }
    bool existed = false;
    enum status status = strmap_put(&table->by_name, name, strlen(name), index, &existed, err);
    if (status || !existed) return status;
    return err_set(err, ERR_FORMAT, "%s has the tensor \"%.150s\" under two names",
                   entry->tensor->path, name);
}

static enum status add_experts(struct tensor_table *table, const struct tensor *t, uint64_t count,
                               struct err *err) {
    enum status status = OK;
    for (uint64_t expert = 0; expert < count && !status; expert++) {
        struct tensor *slice = &table->slices[table->num_slices++];
        *slice = *t;
        slice->rank = 2;
        slice->shape[0] = t->shape[1];
        slice->shape[1] = t->shape[2];
        slice->size_bytes = t->size_bytes / count;
        slice->begin = t->begin + expert * slice->size_bytes;
        slice->source = byte_source_skip(t->source, expert * slice->size_bytes);
        uint32_t index = (uint32_t)table->count++;
        table->entries[index].tensor = slice;
        status = name_entry(table, index, &expert, err);
    }
    return status;
}

static enum status list_entries(struct tensor_table *table, struct err *err) {
    const struct tensor_set *set = table->set;
    size_t num_slices = 0, count = set->count;
    for (size_t i = 0; i < set->count; i++) {
        uint64_t experts = num_experts(set->tensors[i]);
        if (experts > SLICES_MAX - num_slices) {
            return err_set(
                err, ERR_UNSUPPORTED,
                "%s: tensor \"%.150s\" is of %llu experts, want at most %d of all layers",
                set->tensors[i]->path, set->tensors[i]->name, (unsigned long long)experts,
                SLICES_MAX);
        }
        num_slices += experts;
        count += experts ? experts - 1 : 0;
    }
    table->slices = calloc(num_slices + 1, sizeof *table->slices);
    table->entries = calloc(count + 1, sizeof *table->entries);
    if (!table->slices || !table->entries) return err_nomem(err, "tensor list");
    enum status status = strmap_reserve(&table->by_name, count, err);
    for (size_t i = 0; i < set->count && !status; i++) {
        const struct tensor *t = set->tensors[i];
        uint64_t experts = num_experts(t);
        if (experts) {
            status = add_experts(table, t, experts, err);
            continue;
        }
        table->entries[table->count++].tensor = t;
        status = name_entry(table, (uint32_t)(table->count - 1), NULL, err);
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

struct table_entry *tensor_table_find(const struct tensor_table *table, const char *name) {
    uint32_t index;
    if (!strmap_get(&table->by_name, name, strlen(name), &index)) return NULL;
    return &table->entries[index];
}
