#include "model/load/conv_load.h"

#include <stdlib.h>

// The taps of this rank's channels, one tap after the other.
static enum status load_taps(struct loader *l, uint32_t index, float **out) {
    const struct decoder_shape *s = &l->decoder->shape;
    const uint64_t shape[2] = {l->decoder->config->hidden_size, SHORT_CONV_TAPS};
    size_t count = (size_t)SHORT_CONV_TAPS * s->conv_size;
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, index, "conv.conv", ".weight");
    float *all = NULL, *taps = malloc(count * sizeof *taps);
    if (!taps) return err_nomem(l->err, name);
    enum status status = loader_read_floats(l, name, 2, shape, &all);
    for (uint32_t tap = 0; tap < SHORT_CONV_TAPS && !status; tap++) {
        for (uint32_t i = 0; i < s->conv_size; i++) {
            taps[(size_t)tap * s->conv_size + i] =
                all[(size_t)(s->conv_start + i) * SHORT_CONV_TAPS + tap];
        }
    }
    if (!status) status = loader_to_device(l->decoder, taps, count, out, l->err);
    free(all);
    free(taps);
    return status;
}

enum status conv_load(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    uint32_t hidden = d->config->hidden_size, start = d->shape.conv_start;
    uint32_t size = d->shape.conv_size;
    const struct layer_formats formats = linear_formats_layer(&d->formats, index);
    struct row_part parts[3]; // b, c and x
    for (uint32_t i = 0; i < ARRAY_LEN(parts); i++) {
        parts[i] = (struct row_part){.module = CONV_IN_MODULE,
                                     .rows = 3 * hidden,
                                     .start = i * hidden + start,
                                     .count = size};
    }
    const struct row_linear in = {parts, ARRAY_LEN(parts), formats.qkv, &layer->qkv};
    const struct col_part out = {CONV_OUT_MODULE, hidden, hidden, start, size, formats.o};
    enum status status = loader_load_rows(l, index, &in, 1, hidden, false);
    if (!status) status = loader_load_cols(l, index, &out, false, &layer->o);
    return status ? status : load_taps(l, index, &layer->conv_taps);
}
