#include "model/load/state_load.h"

#include <math.h>
#include <stdlib.h>

static size_t count_of(const struct state_part *parts, uint32_t num_parts) {
    size_t count = 0;
    for (uint32_t p = 0; p < num_parts; p++) count += parts[p].count;
    return count;
}

enum status state_load_taps(struct loader *l, uint32_t layer, const char *module, uint32_t channels,
                            uint32_t num_taps, const struct state_part *parts, uint32_t num_parts,
                            float **out) {
    const uint64_t shape[2] = {channels, num_taps};
    size_t count = count_of(parts, num_parts), at = 0;
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, module, ".weight");
    float *all = NULL, *taps = malloc(num_taps * count * sizeof *taps);
    if (!taps) return err_nomem(l->err, name);
    enum status status = loader_read_floats(l, name, 2, shape, &all);
    for (uint32_t p = 0; p < num_parts && !status; p++) {
        for (uint32_t i = 0; i < parts[p].count; i++, at++) {
            for (uint32_t tap = 0; tap < num_taps; tap++) {
                taps[tap * count + at] = all[(size_t)(parts[p].start + i) * num_taps + tap];
            }
        }
    }
    if (!status) status = loader_to_device(l->decoder, taps, num_taps * count, out, l->err);
    free(all);
    free(taps);
    return status;
}

enum status state_load_vector(struct loader *l, uint32_t layer, const char *name, uint32_t count,
                              const struct state_part *parts, uint32_t num_parts, float **out) {
    const uint64_t shape[1] = {count};
    size_t taken = 0;
    char whole[WEIGHT_NAME_BYTES];
    layer_weight_name(whole, layer, name, "");
    float *all = NULL, *values = malloc(count_of(parts, num_parts) * sizeof *values);
    if (!values) return err_nomem(l->err, whole);
    enum status status = loader_read_floats(l, whole, 1, shape, &all);
    for (uint32_t p = 0; p < num_parts && !status; p++) {
        for (uint32_t i = 0; i < parts[p].count; i++) values[taken++] = all[parts[p].start + i];
    }
    if (!status) status = loader_to_device(l->decoder, values, taken, out, l->err);
    free(all);
    free(values);
    return status;
}

enum status state_load_decay(struct loader *l, uint32_t layer, const char *module,
                             uint32_t num_heads, const struct state_part *part, float **out) {
    const uint64_t shape[1] = {num_heads};
    char name[WEIGHT_NAME_BYTES], log_name[WEIGHT_NAME_BYTES];
    float *values = NULL;
    layer_weight_name(name, layer, module, ".A");
    layer_weight_name(log_name, layer, module, ".A_log");
    bool is_log = weights_has(l->weights, log_name) || !weights_has(l->weights, name);
    enum status status = loader_read_floats(l, is_log ? log_name : name, 1, shape, &values);
    for (uint32_t i = 0; i < num_heads && !status; i++) {
        values[i] = is_log ? expf(values[i]) : -values[i];
    }
    if (!status) {
        status = loader_to_device(l->decoder, values + part->start, part->count, out, l->err);
    }
    free(values);
    return status;
}
